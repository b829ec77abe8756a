"""``python -m rulewright`` is the command line."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it as quietly while it still loads."""
    try:
        from rulewright.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("rulewright: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
