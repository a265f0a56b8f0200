"""Small bundles for tests: the shipped schema, limits and clusters with other policies and rows."""

from policy_examples import texts

from bridge.policy.bundle import Bundle, parse_bundle

ACCOUNTS = """
[floor]
uid = 1000
[denied]
users = ["slurm"]
groups = ["sudo"]
[[account]]
issuer = "https://gitlab.realm.test"
user_id = 101
account = "alice"
uid = 20001
[[account]]
issuer = "https://gitlab.realm.test"
user_id = 102
account = "bob"
uid = 20002
expires = 2026-12-31
[[account]]
issuer = "https://gitlab.realm.test"
user_id = 105
account = "root"
uid = 0
"""


def files_of(*policies: str, accounts_toml: str = ACCOUNTS, **files: str) -> dict[str, str]:
    """The texts of the shipped bundle with only these policies and rows, and no cases."""
    kept = {name: text for name, text in texts().items() if not name.endswith(".cedar") and "/" not in name}
    changed = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    return kept | {"all.cedar": "\n".join(policies), "accounts.toml": accounts_toml} | changed


def bundle_of(*policies: str, accounts_toml: str = ACCOUNTS, **files: str) -> Bundle:
    """The bundle of ``files_of``."""
    return parse_bundle(files_of(*policies, accounts_toml=accounts_toml, **files))


def permit(
    name: str, rest: str = ";", limits: str = "small", head: str = "principal", resource: str = "resource"
) -> str:
    """A permit in Cedar."""
    return f'@id("{name}") @limits("{limits}") permit ({head}, action == Action::"run_as", {resource}) {rest}'


def forbid(name: str, rest: str = ";", resource: str = "resource") -> str:
    """A forbid in Cedar."""
    return f'@id("{name}") @reason("no.") forbid (principal, action == Action::"run_as", {resource}) {rest}'


PROTECTED = permit("protected", "when { context.ref_protected };", "standard")
OTHER = permit("other", "unless { context.ref_protected };", "small")
FORKS = forbid("forks", "unless { context.project_id == context.job_project_id };")
SYSTEM = forbid("system", "when { resource.uid < 1000 || resource.gid < 1000 };")
