"""The ``ci-bridge`` command."""

from __future__ import annotations

import logging
import sys

import structlog
import typer

from bridge.cli import account, api, audit, consent, database, doctor, kill, policy, run, service, token, token_api

app = typer.Typer(
    name="ci-bridge",
    help="Runs every GitLab CI job on the cluster as the person who started it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(service.serve)
app.command("broker")(service.broker)
app.command("doctor")(doctor.doctor)
app.add_typer(database.app, name="db")
app.add_typer(audit.app, name="audit")
app.add_typer(policy.app, name="policy")
app.add_typer(token.app, name="token")
app.add_typer(kill.app, name="kill")
app.add_typer(consent.app, name="consent")
app.add_typer(account.app, name="account")
app.add_typer(api.app, name="api")
app.add_typer(run.app, name="run")
app.add_typer(token_api.app, name="api-token")


def main() -> None:
    """Run the command line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # paramiko and others log through logging; their debug lines are nobody's business.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    app()


if __name__ == "__main__":
    main()
