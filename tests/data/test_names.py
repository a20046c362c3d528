"""Names of classes, domains and clients: what cannot be told apart is refused, and numbers sort as numbers."""

import os

import pytest

from fedbench.data._names import natural_order, require_distinct
from fedbench.errors import FedbenchError

COMPOSED, DECOMPOSED = "Caf\u00e9", "Cafe\u0301"
ALIKE = [(COMPOSED, DECOMPOSED), ("TV", "Tv"), ("Site A", "Site A "), ("CAF\u00c9", DECOMPOSED), (" a", "A\u00a0")]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_the_same_are_refused_and_both_are_named(one, other):
    with pytest.raises(FedbenchError, match=r"^here: domain names .* and .* differ only in case, space or") as error:
        require_distinct(["other", one, other], "domain", "here")
    assert any(write(one) in str(error.value) and write(other) in str(error.value) for write in (repr, ascii))
    require_distinct([one, one, "other"], "domain", "here")


def test_names_that_are_one_only_to_the_eye_are_shown_by_their_codes():
    with pytest.raises(FedbenchError, match=r"names 'Caf\\xe9' and 'Cafe\\u0301' differ"):
        require_distinct([COMPOSED, DECOMPOSED], "class", "here")


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_blank_names_are_refused(name):
    with pytest.raises(FedbenchError, match=r"^here: client '.*' has a blank name; rename it$"):
        require_distinct([name], "client", "here")


def test_natural_order():
    names = ["w10", "w2", "1", "11", "2", "w2b", "x", "007", "w02"]
    assert sorted(names, key=natural_order) == ["1", "2", "007", "11", "w02", "w2", "w2b", "w10", "x"]
    assert sorted(["²", "2", "٣"], key=natural_order) == ["2", "²", "٣"]  # digits of other kinds are letters


@pytest.mark.parametrize(
    ("kind", "folders"),
    [
        ("class", [f"{COMPOSED}/{{}}.png", f"{DECOMPOSED}/{{}}.png"]),
        ("class", ["indoor/TV/{}.png", "outdoor/Tv/{}.png"]),
        ("domain", ["Site/a/{}.png", "site/a/{}.png", "Site/b/{}.png"]),
    ],
)
def test_folders(builder, kind, folders):
    files = builder.files([folder.format(number) for folder in folders for number in range(9)])
    with pytest.raises(FedbenchError, match=rf"set\.zip: {kind} names .* differ only in case") as error:
        builder.prepare(builder.write("zip", files))
    assert "\n" not in str(error.value)


def test_a_class_folder_whose_name_is_not_utf8(builder):
    path = builder.write("folder", builder.files([f"{c}/{n}.png" for c in "ab" for n in range(9)]))
    os.rename(builder.root / path / "b", os.fsencode(builder.root / path) + b"/caf\xe9")
    with pytest.raises(FedbenchError, match=r"set: the name of class 'caf\\udce9' is not UTF-8; rename it"):
        builder.prepare(path)


NAMES = [f"{c}/{n}.png" for c in "ab" for n in range(18)]


def client_file(builder, owners, extra=()):
    """The config's path to an archive with a table of clients."""
    lines = ["path,client", *(f"{name},{owner}" for name, owner in zip(NAMES, owners, strict=True)), *extra]
    return builder.write("zip", {**builder.files(NAMES), "clients.csv": "\n".join(lines).encode()})


def test_clients_sort_as_numbers(builder):
    owners = [str(number // 3 + 1) for number in range(36)]
    store = builder.prepare(client_file(builder, owners), clients="clients.csv")
    assert store.group_names == tuple(map(str, range(1, 13)))
    assert store.groups.max() == 11


def test_clients_that_look_the_same(builder):
    path = client_file(builder, ["Site A", "Site A "] * 18)
    with pytest.raises(FedbenchError, match=r"client names 'Site A' and 'Site A ' differ only"):
        builder.prepare(path, clients="clients.csv")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a/3.png,y", r"line 38: a/3\.png is listed twice; give it one client"),
        ("a/99.png,x", r"line 38: no image a/99\.png; remove the line or add it"),
        (",x", "line 38: expected a path and a client"),
        ("a/3.png,", "line 38: expected a path and a client"),
        ("a/3.png", "line 38: expected a path and a client"),
    ],
)
def test_lines_of_the_client_table(builder, line, message):
    path = client_file(builder, ["x"] * 36, [line])
    with pytest.raises(FedbenchError, match=rf"set\.zip: clients\.csv, {message}"):
        builder.prepare(path, clients="clients.csv")
