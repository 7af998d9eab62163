"""How a model is trained: step, loop, evaluation, checkpoints, several processes."""
