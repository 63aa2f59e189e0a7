"""What a GPU is told to do: pipelines, dispatches and tables of a plan."""
