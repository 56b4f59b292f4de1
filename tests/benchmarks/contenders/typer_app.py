"""A typer app of one command that prints one line: the floor of a command line that is made with typer."""

import typer

app = typer.Typer()


@app.command()
def status() -> None:
    print("nothing to do")


if __name__ == "__main__":
    app()
