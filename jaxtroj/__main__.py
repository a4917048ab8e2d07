"""`python -m jaxtroj` is the `jaxtroj` command."""

from jaxtroj.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
