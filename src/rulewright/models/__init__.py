"""The reference networks of the papers' experiments on documents, and the loop that trains them."""

from rulewright.models.atlop import Atlop
from rulewright.models.backbone import Backbone, PairLogits
from rulewright.models.batches import Batch, collate
from rulewright.models.build import build_model, default_settings
from rulewright.models.checkpoints import load_weights, save_weights
from rulewright.models.documents import DocumentFeatures, Featurizer
from rulewright.models.encoders import Encoded, Encoder, PretrainedEncoder, WordEncoder, WordTokenizer
from rulewright.models.gain import Gain
from rulewright.models.losses import adaptive_threshold_loss, binary_cross_entropy
from rulewright.models.predictions import DocumentPrediction, Predictions, predict
from rulewright.models.recurrent import Recurrent
from rulewright.models.settings import TrainingSettings
from rulewright.models.thresholds import Thresholded, best_threshold
from rulewright.models.training import EpochRecord, Progress, TrainingResult, train

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
