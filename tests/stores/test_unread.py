"""A folder that is not understood: the error names its files, what is in them, and what to try."""

import pytest
from click.testing import CliRunner

from tracker_health.api import check
from tracker_health.cli import cli


def said(folder):
    (error,) = check(folder).errors
    return error.message


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_a_text_is_named_with_its_beginning(tmp_path):
    put(tmp_path, "ausgabe.txt", "\nSchritt 1 Verlust 2.3\n" * 9)
    assert "seen: ausgabe.txt (begins 'Schritt 1 Verlust 2.3')" in said(tmp_path)
    assert "roles.train_loss=NAME" in said(tmp_path)
    assert "(begins 'Schritt 1 Verlust 2.3')" in said(tmp_path / "ausgabe.txt")
    put(tmp_path, "train.log", "Schritt 1 Verlust 2.3\n" * 9)
    assert "9 lines of train.log (begins 'Schritt 1 Verlust 2.3') none names a metric" in said(tmp_path)


def test_a_table_is_named_with_its_columns(tmp_path):
    put(tmp_path, "tabelle.tsv", 'Schritt\t"Verlust"\n1\t2\n')
    assert "seen: tabelle.tsv (columns Schritt, Verlust)" in said(tmp_path)


def test_files_in_one_folder_below_name_it(tmp_path):
    put(tmp_path, "README", "what it is")
    put(tmp_path, "deep/er/verlauf.csv", "# made by hand\niteration,Verlust\n1,2\n")
    assert "seen: deep/er/verlauf.csv (columns iteration, Verlust); give the folder of one run: deep" in said(tmp_path)
    put(tmp_path, "other/verlauf.csv", "iteration,Verlust\n1,2\n")
    assert "give the folder" not in said(tmp_path)


def test_other_files_are_counted_and_many_are_not_listed(tmp_path):
    put(tmp_path, "README", "what it is")
    assert "seen: 1 file, as README; looked for" in said(tmp_path)
    for number in range(30):
        put(tmp_path, f"sub/{number}.txt", "x" * (number + 1))
    assert "; 27 more" in said(tmp_path)


@pytest.mark.parametrize(
    "content", [b"\x1b[2J\x1b]0;owned\x07 evil", b"\0" * 99, b"\xff\xfe" * 99, b"x" * 10**6, "ä".encode() * 5000, b""]
)
def test_what_is_in_a_file_cannot_move_the_cursor(tmp_path, content):
    put(tmp_path, "ausgabe.txt", content)
    put(tmp_path, "b\x1b[1m.tsv", content + b"\t2\n")
    message = said(tmp_path)
    assert message.isprintable()
    assert len(message) < 1000


def test_nothing_is_written_where_no_single_run_is(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rows = [f'{{"step": {step}, "loss": {2.0 / step + (name == "b")}}}' for step in range(1, 60)]
        (tmp_path / name / "log.jsonl").write_text("\n".join(rows))
    done = CliRunner().invoke(cli, ["annotate", str(tmp_path)])
    assert done.exit_code == 3
    assert "it is not the folder of one run" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert CliRunner().invoke(cli, ["annotate", str(tmp_path / "a")]).exit_code == 0
