"""Commands as a user types them, without a new process."""

from __future__ import annotations

from selfcal import cli


def typed(capsys, *arguments):
    """(exit code, stdout, stderr)."""
    try:
        cli.main([str(a) for a in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def typed_unwrapped(capsys, *arguments):
    """The same, stderr in one line: where it was broken is the terminal's business."""
    code, out, err = typed(capsys, *arguments)
    return code, out, " ".join(err.split())
