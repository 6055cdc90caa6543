"""Tables of labels as people write them: each is read right, or refused in a sentence that names all culprits."""

from __future__ import annotations

import re

import pytest
import torch

from messy import BLUE, plain, put
from selfcal.core.errors import SelfcalError
from selfcal.data.labels import chosen, judged_by, reveal
from selfcal.data.sources import load_data
from selfcal.data.summary import in_words
from selfcal.diffusion.scores import UNLABELED

FLAT = {f"{i}.png": plain() for i in range(5)}
FOLDERS = {f"{name}/{i}.png": plain() for name in ("cat", "dog") for i in range(2)} | {"unlabeled/u.png": plain()}
TABLE = "file,label\n0.png,cat\n1.png,dog\n"
SEEN = {"0.png": "cat", "1.png": "dog"}

READ = {  # name: (files of the pile, the table, {file: label that is seen})
    "a comma": (FLAT, TABLE, SEEN),
    "semicolons": (FLAT, TABLE.replace(",", ";"), SEEN),
    "tabs": (FLAT, TABLE.replace(",", "\t"), SEEN),
    "bars": (FLAT, TABLE.replace(",", "|"), SEEN),
    "Excel's sep=": (FLAT, "sep=;\n" + TABLE.replace(",", ";"), SEEN),
    "other words, other order": (FLAT, "Category;note;Image\ncat;x, y;0.png\ndog;;1.png\n", SEEN),
    "filename and class": (FLAT, "filename,class\n0.png,cat\n1.png,dog\n", SEEN),
    "path and category": (FLAT, "path, category\n0.png, cat\n1.png, dog\n", SEEN),
    "one known head of two": (FLAT, "id,breed\n0,cat\n1,dog\n", SEEN),
    "no header": (FLAT, "0.png,cat\n1.png,dog\n", SEEN),
    "no header, labels first": (FLAT, "cat\t0.png\ndog\t1.png\n", SEEN),
    "no header, and a class called target": (FLAT, "0.png,target\n1.png,dog\n", {"0.png": "target", "1.png": "dog"}),
    "more columns without a header": (FLAT, "0.png\tcat\t0\t0\t62\n1.png\tdog\t1\t2\t3\n", SEEN),
    "a byte-order mark": (FLAT, b"\xef\xbb\xbf" + TABLE.encode(), SEEN),
    "UTF-16 as Excel saves it": (FLAT, TABLE.replace(",", "\t").encode("utf-16"), SEEN),
    "UTF-16 without a mark": (FLAT, TABLE.encode("utf-16-be"), SEEN),
    "lines of Windows": (FLAT, TABLE.replace("\n", "\r\n"), SEEN),
    "lines of old Macs": (FLAT, TABLE.replace("\n", "\r"), SEEN),
    "quoted commas and blank lines": (
        FLAT,
        'file,label\n\n"0.png","cat, sad"\n,,\n1.png,dog\n',
        {"0.png": "cat, sad", "1.png": "dog"},
    ),
    "unlabelled in all spellings": (FLAT, TABLE + "2.png,\n3.png,?\n4.png,-1\n2.png,Unlabeled\n", SEEN),
    "backslashes and dots": (FLAT, TABLE.replace("0.png", ".\\0.png").replace("1.png", "./1.png"), SEEN),
    "names without ending": (FLAT, TABLE.replace(".png", ""), SEEN),
    "twice the same": (FLAT, TABLE + "0.png,cat\n", SEEN),
    "classes in two cases": (FLAT, TABLE + "2.png,Cat\n", SEEN | {"2.png": "Cat"}),
    "paths from the table's folder": (FLAT, "file,label\npile/0.png,cat\npile/1.png,dog\n", SEEN),
    "folders and a unique name": (
        {"cat/7.png": plain(), "dog/8.png": plain(), "unlabeled/9.png": plain()},
        "file,label\n7.png,cat\ndog/8.png,Dog\n9.png,dog\n",
        {"cat/7.png": "cat", "dog/8.png": "dog", "unlabeled/9.png": "dog"},
    ),
    "from the root, past train/": (
        {f"train/{name}": content for name, content in FLAT.items()},
        "file,label\ntrain/0.png,cat\n1.png,dog\n",
        SEEN,
    ),
    "a folder images/": (
        {f"images/{name}": content for name, content in FLAT.items()},
        "file,label\nimages/0.png,cat\n1.png,dog\n",
        SEEN,
    ),
}


def seen_in(data, visible):
    return {n: data.classes[c] for n, c in zip(data.names, visible.tolist(), strict=True) if c != UNLABELED}


def written(tmp_path, files, table, name="t.csv"):
    put(tmp_path, {name: table})
    return load_data(put(tmp_path / "pile", files)), str(tmp_path / name)


@pytest.mark.parametrize("case", READ)
def test_read_right(tmp_path, case):
    files, table, wanted = READ[case]
    data, visible = reveal(*written(tmp_path, files, table), seed=0)
    assert seen_in(data, visible) == wanted
    assert data.classes == tuple(sorted(set(wanted.values())))
    assert seen_in(data, data.y).items() >= wanted.items()


def test_absolute_paths(tmp_path, monkeypatch):
    table = f"file,label\n{tmp_path}/pile/0.png,cat\n{tmp_path}/pile/x/../1.png,dog\n"
    assert seen_in(*reveal(*written(tmp_path, FLAT, table), seed=0)) == SEEN
    monkeypatch.chdir(tmp_path)
    here, _ = written(tmp_path, FLAT, "")
    put(tmp_path / "elsewhere", {"t.tsv": "0.png\tcat\npile/1.png\tdog\n"})  # as seen from where the command is typed
    assert seen_in(*reveal(here, "elsewhere/t.tsv", seed=0)) == SEEN


REFUSED = {  # name: (files of the pile, the table, what the sentence says)
    "files that are not there": (FLAT, TABLE + "8.png,cat\n9.png,dog\n", r"'8\.png', '9\.png', which are not in pile"),
    "files elsewhere": (
        FLAT,
        TABLE + "../0.png,cat\n/etc/1.png,dog\n",
        r"'\.\./0\.png', '/etc/1\.png', which are not in",
    ),
    "a name that two files have": (
        FOLDERS,
        "file,label\n0.png,cat\n1.png,dog\n",
        r"'0\.png', '1\.png', as several images",
    ),
    "two labels": (FLAT, TABLE + "0.png,dog\n./1,cat\n", "'0.png' two labels, 'cat' and 'dog', './1' two labels"),
    "against the folders": (
        FOLDERS,
        "file,label\ncat/0.png,dog\ndog/1.png,cat\ncat/1.png,cat\n",
        r"contradicts the classes of pile: cat/0\.png is 'dog' there and 'cat' here, dog/1\.png is 'cat' there",
    ),
    "classes that are no folders": (
        FOLDERS,
        "file,label\ncat/0.png,cow\nunlabeled/u.png,hen\n",
        r"'cat/0\.png' the label 'cow', 'unlabeled/u\.png' the label 'hen'; the classes are cat, dog",
    ),
    "a class without a label": (FOLDERS, "file,label\ncat/0.png,cat\n", "class 'dog' has no label in"),
    "only one class": (
        FLAT,
        "file,label\n0.png,cat\n",
        "only the class 'cat'; guidance needs at least two: label some of the 4",
    ),
    "nothing but question marks": (FLAT, "file,label\n0.png,?\n1.png,-1\n", "has no rows with a label"),
    "no known column": (
        FLAT,
        "who,what,when\n0.png,cat,now\n",
        "should name the columns file and label .* 'who', 'what'",
    ),
    "labels without files": (FLAT, TABLE + ",cat\n,dog\n", "line 4, line 5 lack a file"),
    "Latin-1": (
        FLAT,
        "file,label\n0.png,Löwe\n1.png,cat\n".encode("latin-1"),
        "neither UTF-8 nor UTF-16; save it as UTF-8",
    ),
    "empty": (FLAT, "", "has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_a_sentence(tmp_path, case):
    files, table, words = REFUSED[case]
    with pytest.raises(SelfcalError, match=words) as refusal:
        reveal(*written(tmp_path, files, table), seed=0)
    assert "\n" not in str(refusal.value)


def test_all_labels_that_the_user_made_are_used(tmp_path):
    """Few of them are for experiments, and asked for."""
    folders = load_data(put(tmp_path / "folders", FOLDERS))
    assert chosen(folders, None) == "all"
    data, visible = reveal(folders, None, seed=0)
    assert torch.equal(visible, data.y)
    assert (visible != UNLABELED).sum() == 4
    assert (reveal(folders, "1/class", seed=0)[1] != UNLABELED).sum() == 2
    assert chosen(load_data("digits"), None) == "0.02"


def test_a_table_in_the_folder_is_found(tmp_path):
    pile = load_data(put(tmp_path / "pile", FLAT | {"Labels.csv": TABLE + "2.png,dog\n", "sizes.csv": "file,bytes\n"}))
    assert chosen(pile, None) == str(tmp_path / "pile" / "Labels.csv")
    assert seen_in(*reveal(pile, None, seed=0)) == SEEN | {"2.png": "dog"}
    data, visible = reveal(pile, "1/class", seed=0)
    assert torch.bincount(visible[visible >= 0]).tolist() == [1, 1]
    assert (data.y != UNLABELED).sum() == 3


def test_a_table_beside_the_folder_is_asked_for(tmp_path):
    pile, table = written(tmp_path, FLAT, TABLE, "Labels.csv")
    with pytest.raises(SelfcalError, match="pile has no labels at all; give it class folders") as refusal:
        reveal(pile, None, seed=0)
    assert str(refusal.value).endswith(f"; is it --labels {table}?")


def test_labels_that_only_judge(tmp_path):
    test = {"test/cat/8.png": plain(BLUE), "test/dog/9.png": plain(BLUE)}
    pile, table = written(tmp_path, FLAT | test, TABLE)
    data, visible = reveal(pile, table, seed=0)
    assert data.classes == ("cat", "dog")
    assert data.y_test.tolist() == [0, 1]
    put(tmp_path, {"j.tsv": "2.png\tdog\n4.png\tCAT\n3.png\t?\n"})
    truth = judged_by(data, tmp_path / "j.tsv")
    assert seen_in(truth, truth.y) == SEEN | {"2.png": "dog", "4.png": "cat"}
    assert seen_in(data, visible) == SEEN
    put(tmp_path, {"j.tsv": "0.png\tdog\ntest/cat/8.png\tdog\n"})
    with pytest.raises(SelfcalError, match=r"0\.png is 'dog' there and 'cat' here, test/cat/8\.png is 'dog' there"):
        judged_by(data, tmp_path / "j.tsv")


def test_test_images_in_no_class_folder_get_their_classes_from_a_table(tmp_path):
    pile, table = written(tmp_path, FLAT | {"test/8.png": plain(), "test/9.png": plain()}, TABLE + "test/8.png,dog\n")
    data, _ = reveal(pile, table, seed=0)
    assert data.y_test.tolist() == [1, UNLABELED]
    put(tmp_path, {"j.csv": "9.png,cat\n"})
    assert judged_by(data, tmp_path / "j.csv").y_test.tolist() == [1, 0]


def test_test_folders_must_be_classes_of_the_table(tmp_path):
    pile, table = written(tmp_path, FLAT | {"test/cow/8.png": plain()}, TABLE)
    with pytest.raises(
        SelfcalError, match=r"test images of pile are of class 'cow', of which .* labels no training image"
    ):
        reveal(pile, table, seed=0)


def test_a_table_may_name_files_that_were_skipped(tmp_path):
    put(tmp_path, {"t.csv": TABLE + "broken.png,dog\n"})
    pile = load_data(put(tmp_path / "pile", FLAT | {"broken.png": ""}), skip_broken=True)
    assert seen_in(*reveal(pile, str(tmp_path / "t.csv"), seed=0)) == SEEN


def test_the_summary_says_what_is_used(tmp_path):
    data, visible = reveal(load_data(put(tmp_path / "pile", FOLDERS)), None, seed=0)
    text = "\n".join(in_words(data, visible, "all", asked=False))
    for part in (
        "pile: 5 images of 4×4, colour",
        "cat 2, dog 2",
        "all 4 labels that there are; 1 images are used without",
    ):
        assert part in text
    data, visible = reveal(*written(tmp_path / "flat", FLAT, TABLE + "2.png,Cat\n"), seed=0)
    text = "\n".join(in_words(data, visible, "t.csv", asked=True))
    assert re.search(r"WARNING: 'Cat' \(1\) and 'cat' \(1\) differ only in case, and are taken as 2 classes", text)
    assert "3 labels from t.csv" in text
    digits, visible = reveal(load_data("digits"), None, seed=0)
    text = "\n".join(in_words(digits, visible, "0.02", asked=False))
    assert "30 of 1433 labels, by the default --labels 0.02" in text
    assert "1403 labels more are kept back, to judge by" in text
