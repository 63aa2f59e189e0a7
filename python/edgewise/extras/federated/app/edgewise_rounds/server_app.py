"""The ServerApp: the remaining rounds of a run folder, with the hub's clients."""

from edgewise.extras.federated.rounds import run_rounds
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rounds of the folder that run-config names. Flower's nodes take part as sites, if
    the run's settings say so.
    """
    run_rounds(str(context.run_config["folder"]), grid)
