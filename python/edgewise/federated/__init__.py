"""Federated rounds: pages and native processes train locally and send differences, a server
aggregates them.

    protocol: the messages of protocol 1 and their checks
    codec, schema: the update format edgewise.delta.1
    verify: what is checked before an update counts
    sessions, uploads, hub: the WebSocket server of clients, which knows no strategy
    client, local_training: a client with the native engine
    grid, strategies, rounds, run_folder: Flower's rounds over the hub
    launch, simulate: `edgewise federate`

Needs `pip install edgewise[federated]`. Only grid, strategies, rounds and app import Flower, and
only its public modules (flwr.app, flwr.serverapp, flwr.clientapp).
"""
