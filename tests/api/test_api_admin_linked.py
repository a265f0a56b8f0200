"""What a bundle means for those whom only a link of the register lets in: the matrix and the diff know them."""

from __future__ import annotations

from tests.api.admin_site import Admin
from tests.register_example import link


def test_somebody_who_linked_themselves_is_in_the_matrix_and_in_the_diff(admin: Admin) -> None:
    with admin.web.broker.register.begin() as (tx, _):
        tx.put_link(link(user_id=777, user_login="dora", account="dora", uid=20077))

    who = admin.get("vic", "/bundles/active/who-can?account=dora").json()["people"]
    assert [(one["user_id"], one["uid"]) for one in who] == [(777, 20077)]
    what = admin.get("vic", "/bundles/active/what-can?user_id=777").json()["people"]
    assert [one["account"] for one in what] == ["dora"]

    accounts = admin.files()["accounts.toml"].replace("self_service = true", "self_service = false")
    compared = admin.post("vic", "/bundles/diff", {"files": admin.files(accounts__toml=accounts)}).json()
    lost = [shift for shift in compared["shifts"] if shift["kind"] == "lost"]
    assert lost
    assert {person[1] for shift in lost for person in shift["people"]} == {777}
