"""The ClientApp, which Flower requires: training is done by the hub's clients."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Refuses: this app has no work for SuperNodes."""
    raise RuntimeError("clients connect to the hub: see edgewise.federated.client")
