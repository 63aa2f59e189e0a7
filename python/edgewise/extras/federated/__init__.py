"""Federated rounds: pages and native processes train locally and send differences, a server
aggregates them.

    protocol: the messages of protocol 1 and their checks
    codec, broadcast: the update format edgewise.delta.1, and the weights of a round as files
    verify: checks before an update counts
    audit: updates of public texts that the server makes, too
    admission, sessions, hub, last: the WebSocket server of clients; no strategies here
    client, client_state, local_training: a client with the native engine
    grid, rounds: Flower's rounds over the hub
    settings: the settings of a run, and its folder
    launch: `edgewise federate`

Needs `pip install edgewise[federated]`. Only grid, strategies, rounds and app import Flower, and
only its public modules (flwr.app, flwr.serverapp, flwr.clientapp).
"""
