"""The reference networks of the papers' experiments on documents, and the loop that trains them."""

from rulewright.papers.milr.batches import Batch, collate
from rulewright.papers.milr.build import build_model, default_settings
from rulewright.papers.milr.documents import DocumentFeatures, Featurizer
from rulewright.papers.milr.encoders import Encoded, Encoder, PretrainedEncoder, WordEncoder, WordTokenizer
from rulewright.papers.milr.gain import Gain
from rulewright.papers.milr.networks import (
    Atlop,
    Backbone,
    PairLogits,
    Recurrent,
    adaptive_threshold_loss,
    binary_cross_entropy,
)
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions, Thresholded, best_threshold, predict
from rulewright.papers.milr.training import Progress, train
from rulewright.training.checkpoints import load_weights, save_weights
from rulewright.training.fitting import EpochRecord, TrainingResult
from rulewright.training.settings import TrainingSettings

__all__ = [
    "Atlop",
    "Backbone",
    "Batch",
    "DocumentFeatures",
    "DocumentPrediction",
    "Encoded",
    "Encoder",
    "EpochRecord",
    "Featurizer",
    "Gain",
    "PairLogits",
    "Predictions",
    "PretrainedEncoder",
    "Progress",
    "Recurrent",
    "Thresholded",
    "TrainingResult",
    "TrainingSettings",
    "WordEncoder",
    "WordTokenizer",
    "adaptive_threshold_loss",
    "best_threshold",
    "binary_cross_entropy",
    "build_model",
    "collate",
    "default_settings",
    "load_weights",
    "predict",
    "save_weights",
    "train",
]
