"""The ClientApp of a site: hands a round to the hub of the site's tabs, and returns their mean.

Its SuperNode says where that hub is: --node-config 'site="/path/of/the/socket"'.
"""

from typing import Any

from edgewise.extras.federated.site import ask
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def _asked(message: Message, context: Context, **more: Any) -> tuple[dict[str, Any], Any]:
    """Sends the weights of a message to the site.

    Raises:
        RuntimeError: the SuperNode does not say where the site is.
        EdgewiseError: the site has no result.
    """
    path = context.node_config.get("site")
    if not path:
        raise RuntimeError("start the SuperNode with --node-config 'site=\"PATH\"'")
    (arrays,) = message.content.array_records.values()
    (record,) = message.content.config_records.values()
    config = dict(record)
    request = {
        "round": config.pop("server-round"),
        "run": config.pop("run"),
        "seed": config.pop("seed"),
        "seconds": config.pop("seconds"),
    }
    weights = {name: array.numpy() for name, array in arrays.items()}
    return ask(str(path), {**request, "config": config, **more}, weights)


@app.train()
def train(message: Message, context: Context) -> Message:
    """The mean of the site's tabs, whose weight is that of all of them."""
    told, arrays = _asked(message, context)
    metrics: dict[str, Any] = {
        "num-examples": told["examples"],
        "participants": told["participants"],
    }
    if "loss" in told:
        metrics["loss"] = told["loss"]
    content = {
        "arrays": ArrayRecord({name: Array(x) for name, x in arrays.items()}),
        "metrics": MetricRecord(metrics),
    }
    return Message(RecordDict(content), reply_to=message)


@app.query()
def last(message: Message, context: Context) -> Message:
    """Gives the site's tabs the weights after the last round."""
    told, _ = _asked(message, context, kind="last")
    metrics = MetricRecord({"participants": told["participants"]})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
