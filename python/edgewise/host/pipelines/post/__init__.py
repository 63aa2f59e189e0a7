"""What pipelines do with the outputs of graphs before edgewise.logic.post."""
