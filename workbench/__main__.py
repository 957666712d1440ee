"""`python -m workbench` is `workbench`."""

from workbench.cli.app import main

if __name__ == "__main__":
    main()
