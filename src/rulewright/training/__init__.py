"""One training loop for every network.

* `loop`: `TrainingSettings`, and the `TrainingLoop` with warm-up, clipping, early stopping, progress and resuming
* `checkpoints`: weights as safetensors, a folder with one resumable state, Ctrl-C, fixed order of addition
"""
