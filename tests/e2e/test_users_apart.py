# SPDX-License-Identifier: MulanPSL-2.0
"""What one user of a machine must not be able to do to the files and jobs of another."""

import os

import pytest
from users import PROJECT


def test_the_users_of_the_tests_are_apart(users):
    """Else the tests below would show nothing."""
    alice, bob = users.alice, users.bob
    (uid, groups), other = bob.do(lambda: (os.getresuid(), os.getgroups())), bob.run("id", "-u")
    assert set(uid) == {bob.uid} and groups == [] and int(other.stdout) == bob.uid
    secret = alice.home / "secret"
    alice.do(lambda: (secret.write_text("hers"), secret.chmod(0o600)))
    assert alice.run("cat", secret).stdout == "hers" == users.root.run("cat", secret).stdout
    assert bob.run("cat", secret).returncode == 1
    with pytest.raises(PermissionError):
        bob.do(lambda: secret.unlink())
    shared = project_of(alice)
    assert bob.run("touch", shared / "no").returncode == 1
    assert bob.run("touch", shared / "yes", groups=[PROJECT]).returncode == 0
    assert bob.run(users.build / "bin/sonde", "--version").returncode == 0


def project_of(user, name="project"):
    """A directory of his in which everybody of the group may write."""
    path = user.home / name

    def make():
        path.mkdir()
        os.chown(path, -1, PROJECT)
        path.chmod(0o2775)

    user.do(make, groups=[PROJECT])
    return path
