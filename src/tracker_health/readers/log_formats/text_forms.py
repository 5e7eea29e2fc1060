"""# Add a form of console logs

Most log lines need no form. Names next to numbers (``step 100 loss=0.52``), dictionaries, progress bars and tables are
understood without one, and the words in a name decide its role. A form is for lines of one trainer that cannot be read
that way. Examples are numbers without names, a position in brackets, and lines that repeat earlier values.

To add one, put a ``Form`` into ``FORMS`` in ``readers/log_formats/text_forms.py``. It says who prints the lines, and has
an example, the points that must be read from it, and a pattern. Nothing else has to be changed. The example is also the
form's test (``tests/readers/test_text_forms.py``) and its entry on this page (``python scripts/generate_docs.py``).

- In a pattern, ``<name>`` is a number with that name. ``__`` in a name becomes a slash. ``#`` is a number to ignore.
- ``<epoch>``, ``<batch>``, ``<step>`` and ``<global_step>`` are axes: they give the position of the line.
  ``<batch_of>`` is the number that the batch counts up to. The step of a line is decided later, when all lines are read.
- ``<file>`` takes its name from the file, if that is the name of a metric: ``train_loss.txt``.
- ``<as_called>`` takes its name from the line, by a group ``(?P<called>...)`` of it.
- A group with a name ending in ``_list`` contains several numbers. Their mean counts.
- ``takes`` says what the form reads. ``PLACE``: only the position; the line's other numbers are read as in any line.
  ``ROW``: the whole line. ``NOTHING``: the line has no values of the history.
- The first form that matches a line is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?|nan|inf)"
PLACE, ROW, NOTHING = "place", "row", "nothing"


@dataclass(frozen=True)
class Form:
    """How some trainers write a line.

    ``takes``: ``PLACE``, ``ROW`` or ``NOTHING``, see above. ``prefix`` is put before the names of its metrics.
    """

    says: str
    written: str
    takes: str = PLACE
    prefix: str = ""

    @property
    def title(self) -> str:
        """Who prints the lines, and what they contain."""
        return self.says.partition("\n")[0].removesuffix(".")

    @property
    def lines(self) -> list[str]:
        """The lines of the example."""
        return [line[4:] for line in self._example if line.startswith(">>> ")]

    @property
    def points(self) -> list[str]:
        """What is read from them: ``loss: (0, 2.5), (10, 2.25)``."""
        return [line for line in self._example if not line.startswith(">>> ")]

    @property
    def _example(self) -> list[str]:
        return [line.strip() for line in self.says.split("\n")[1:]]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(
            re.sub(r"(?<!P)<(\w+)>", lambda m: f"(?P<{m[1]}>{_NUMBER})", self.written).replace("#", _NUMBER)
        )


FORMS = (
    Form("""Keras: a progress bar that is redrawn, with means of the epoch so far; only the last one counts.
        >>> Epoch 1/2
        >>> 10/469 [>.............................] - ETA: 5s - loss: 0.9
        >>> 469/469 [==============================] - 5s 10ms/step - loss: 0.5
        loss: (1, 0.5)""",
        r"^[ \t]*(\d+)/(?!\1[ ])\d+[ ]+(?:\[(?!\d+:\d\d)|[━╸])", NOTHING),
    Form("""Keras: the end of an epoch, with or without a bar; a full bar may be drawn again with the evaluation.
        >>> Epoch 1/2
        >>> 100/100 ━━━━━━━━━━━━━━━━━━━━ 5s 10ms/step - loss: 0.5
        >>> 100/100 ━━━━━━━━━━━━━━━━━━━━ 5s 10ms/step - loss: 0.5 - val_loss: 0.6
        >>> Epoch 2/2
        >>> 100/100 - 2s - 5ms/step - loss: 0.4 - val_loss: 0.5
        loss: (1, 0.5), (2, 0.4)
        val_loss: (1, 0.6), (2, 0.5)""",
        r"^[ \t]*<end>/<end_of>[ ]+(?:\[(?!\d+:\d\d)|[━╸]|- \d+m?s\b)"),
    Form("""torchvision, DETR: means after the steps of an epoch, and the batches of an evaluation; neither counts.
        >>> Epoch: [0]  [ 20/100]  loss: 6.81 (6.85)
        >>> Averaged stats: loss: 6.7 (6.7)
        >>> Test:  [ 0/196]  eta: 0:05:00  loss: 6.1 (6.1)
        loss: (20, 6.81)""",
        r"^[ \t]*Averaged stats\b|\bTest:[ ]{0,3}\[[ ]*\d+/", NOTHING),
    Form("""CatBoost: rounds; the rest of a line is the best round so far, and times.
        >>> 0:\tlearn: 0.65\ttest: 0.64\tbest: 0.64 (0)\ttotal: 47.8ms\tremaining: 2.82s
        >>> 10:\tlearn: 0.55\ttest: 0.56\tbest: 0.56 (10)\ttotal: 50ms\tremaining: 2s
        learn: (0, 0.65), (10, 0.55)
        test: (0, 0.64), (10, 0.56)""",
        r"^<step>:\t(?:learn: <learn>(?:\t|$))?(?:test: <test>(?:\t|$))?(?:test1: <test1>)?", ROW),
    Form("""fairseq: means of an epoch, kept apart from the losses logged during it.
        >>> INFO | train_inner | epoch 001:    100 / 500 loss=9.5, num_updates=100
        >>> INFO | train | epoch 001 | loss 8.9 | num_updates 500
        loss: (100, 9.5)
        train_loss: (500, 8.9)""",
        r"\| train \| epoch <epoch> \|", prefix="train_"),
    Form("""llm.c: main.log, where trl is the training loss and tel the test loss.
        >>> s:0 tel:11.19
        >>> s:0 trl:10.66 lr:0.0006 norm:1.46
        train_loss: (0, 10.66)
        test_loss: (0, 11.19)""",
        r"^s:<step> (?:tel:<test_loss>|trl:<train_loss> lr:<lr> norm:<grad_norm>|eval:<eval_accuracy>)$", ROW),
    Form("""llama2.c: a step without a name.
        >>> 0 | loss 10.3702 | lr 0.000000e+00 | 5000.12ms | mfu -100.00%
        >>> 10 | loss 9.4012 | lr 5.000000e-06 | 500.12ms | mfu 12.31%
        loss: (0, 10.3702), (10, 9.4012)""",
        r"^<step> \| (?=loss |lr )"),
    Form("""WeNet: the epoch and the batch.
        >>> DEBUG TRAIN Batch 0/100 loss 100.25 loss_att 80.5 lr 0.0001 rank 0
        >>> DEBUG TRAIN Batch 0/200 loss 90.25 loss_att 70.5 lr 0.0001 rank 0
        loss: (100, 100.25), (200, 90.25)""",
        r"\b(?:TRAIN|CV) Batch <epoch>/<batch> "),
    Form("""An epoch and a number whose name is the file's, as in train_loss.txt.
        >>> epoch 0:1683.6
        >>> epoch 1:1517.9
        train_loss: (0, 1683.6), (1, 1517.9)""",
        r"^[Ee]poch[ ]?<epoch>[ ]?[:,=\t][ ]?<file>$", ROW),
    Form("""Lightning: the best value of a metric so far, as early stopping tells it.
        >>> Metric val_loss improved. New best score: 0.412
        >>> Metric val_loss improved by 0.065 >= min_delta = 0.0. New best score: 0.347
        >>> Epoch 2: 100%|██████████| 20/20 [00:00<00:00, 471.06it/s]Metric val_loss improved by 0.04 >= min_delta = 0.0. New best score: 0.307
        val_loss: (1, 0.412), (2, 0.347), (3, 0.307)""",
        r"\bMetric (?P<called>[\w./-]{1,100}) improved\b.{0,80}? New best score: <as_called>[ ]*$", ROW),
    Form("""DeepSpeed-Chat: what a reward model says of pairs it was not trained on.
        >>> Epoch 1/2 with loss 0.61
        >>> chosen_last_scores (higher is better) : 0.5, rejected_last_scores (lower is better) : 0.2, acc (higher is better) : 0.6
        >>> Epoch 2/2 with loss 0.51
        >>> chosen_last_scores (higher is better) : 0.9, rejected_last_scores (lower is better) : 0.1, acc (higher is better) : 0.7
        eval/acc: (1, 0.6), (2, 0.7)""",
        r"^chosen_last_scores \(higher is better\) : <eval__chosen_score>, rejected_last_scores \(lower is better\) : "
        r"<eval__rejected_score>, acc \(higher is better\) : <eval__acc>", ROW),
    Form("""A time, the epoch, the batch and the loss, without a name.
        >>> 2023-04-09 19:29:00,641 - 0\t0\t1.64
        >>> 2023-04-09 19:29:01,641 - 0\t1\t1.53
        loss: (0, 1.64), (1, 1.53)""",
        r"^\d{4}-\d\d-\d\d[ T][\d:,.]{8,15}(?: -)?[ \t]<epoch>\t<batch>\t<loss>$", ROW),
    Form("""A time and a number whose name is the file's.
        >>> 2026-03-01 10:00:01\t2.5
        >>> 2026-03-01 10:00:02\t2.25
        train_loss: (1, 2.5), (2, 2.25)""",
        r"^\d{4}-\d\d-\d\d[ T][\d:,.]{8,15}(?:Z| -)?[ \t]<file>$", ROW),
    Form("""A step and a number whose name is the file's.
        >>> step 100: 2.5
        >>> step 200: 2.25
        train_loss: (100, 2.5), (200, 2.25)""",
        r"^(?:(?:[Ss]tep|[Ii]ter(?:ation)?)[ ]?)?<step>[ ]?[:,=\t ][ ]?<file>$", ROW),
    Form("""build-nanogpt: the step, the data set, the loss.
        >>> 0 val 11.3
        >>> 0 train 11.16
        train_loss: (0, 11.16)
        val_loss: (0, 11.3)""",
        r"^<step> (?:train <train_loss>|val <val_loss>|hella <hella_accuracy>)$", ROW),
    Form("""YOLOv5, YOLOv7: results.txt, fifteen columns in a known order.
        >>>  0/59  11.8G  0.0746  0.0400  0.0100  0.1034  64  640  0.8  0.7  0.30  0.10  0.0956  0.0500  0.0110
        train/total_loss: (0, 0.1034)
        val/box_loss: (0, 0.0956)""",
        r"^[ ]*<epoch>/<epoch_of>[ ]+[\d.]+G[ ]+<train__box_loss>[ ]+<train__obj_loss>[ ]+<train__cls_loss>[ ]+<train__total_loss>[ ]+#[ ]+#"
        r"[ ]+<metrics__precision>[ ]+<metrics__recall>[ ]+<metrics__mAP_50>[ ]+<metrics__mAP>"
        r"[ ]+<val__box_loss>[ ]+<val__obj_loss>[ ]+<val__cls_loss>[ ]*$", ROW),
    Form("""Darknet: names after their numbers.
        >>>  1: 1000.5, 1000.5 avg loss, 0.000100 rate, 3.5 seconds, 64 images
        avg_loss: (1, 1000.5)""",
        r"^[ ]*<step>: <loss>, <avg_loss> avg(?: loss)?, <learning_rate> rate", ROW),
    Form("""The step after the name of the loss, as in courses and tutorials.
        >>> Cost after iteration 0: 0.693
        >>> Cost after iteration 100: 0.584
        loss: (0, 0.693), (100, 0.584)""",
        r"^(?:[Tt]raining )?(?:[Cc]ost|[Ll]oss) (?:after|at|in) (?:iteration|epoch|step) <step>[ ]?[:=][ ]?<loss>", ROW),
    Form("""Deeplearning4j: the score is the loss.
        >>> INFO org.deeplearning4j.optimize.listeners.ScoreIterationListener - Score at iteration 0 is 1.71
        >>> INFO org.deeplearning4j.optimize.listeners.ScoreIterationListener - Score at iteration 10 is 1.64
        loss: (0, 1.71), (10, 1.64)""",
        r"\bScore at iteration <step> is <loss>[ ]*$", ROW),
    Form("""CycleGAN, pix2pix: the epoch, and how many of its images were seen.
        >>> (epoch: 1, iters: 100, time: 0.4) D_A: 0.216 G_A: 0.292 Cyc_A: 1.174
        >>> (epoch: 1, iters: 200, time: 0.4) D_A: 0.175 G_A: 0.301 Cyc_A: 1.056
        G_A: (100, 0.292), (200, 0.301)""",
        r"^\(epoch: <epoch>, iters: <batch>,"),
    Form("""Tacotron 2: the step between a name and its number.
        >>> Train loss 10 2.5 Grad Norm 10.5 1.25s/it
        train_loss: (10, 2.5)""",
        r"^Train loss <step> <train_loss> Grad Norm <grad_norm>", ROW),
    Form("""Tacotron 2: evaluations.
        >>> Validation loss 10:  0.9
        val_loss: (10, 0.9)""",
        r"^Validation loss <step>:[ ]+<val_loss>", ROW),
    Form("""nnU-Net: the score of each class; the mean counts.
        >>> 2026-03-04 10:00:01.1: Epoch 0
        >>> 2026-03-04 10:02:05.4: train_loss 0.157
        >>> 2026-03-04 10:02:07.1: Pseudo dice [0.5, 0.25]
        >>> 2026-03-04 10:03:01.1: Epoch 1
        >>> 2026-03-04 10:04:05.4: train_loss 0.1
        >>> 2026-03-04 10:04:07.1: Pseudo dice [np.float32(0.75), np.float32(0.25), nan]
        val_dice: (0, 0.375), (1, 0.5)""",
        r": Pseudo dice \[(?P<val_dice_list>[^\[\]\n]{1,2000})\]", ROW),
    Form("""DeepSpeed: a step that overflowed and was skipped; the number is a loss scale.
        >>> step 2 loss=0.5
        >>> [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
        loss: (2, 0.5)
        loss_scale: (2, 32768)""",
        r"OVERFLOW!.{1,80}?loss scale: #,(?: reducing to <loss_scale>)?", ROW),
    Form("""Marian: epochs and updates.
        >>> [2024-03-01 10:00:01] Ep. 1 : Up. 500 : Sen. 10,000 : Cost 8.53 * 1,000 @ 1,000 after 10,000 : Time 90.11s
        Cost: (500, 8.53)""",
        r"\bEp\. <epoch>(?:\.\d+)? : Up\. <step> :"),
    Form("""ESPnet: batches, and the means of an epoch.
        >>> 1epoch:train:1-100batch: iter_time=1.0e-04, loss_ctc=100.0, loss=85.0
        >>> 1epoch:train:101-200batch: iter_time=1.0e-04, loss_ctc=90.0, loss=75.0
        >>> 1epoch results: [train] iter_time=1.0e-04, loss=85.0, [valid] loss_ctc=90.0, loss=70.0
        loss: (100, 85.0), (200, 75.0)
        valid/loss: (200, 70.0)""",
        r"\b<epoch>epoch(?::train:(?:\d+-)?<batch>batch:| results:)"),
    Form("""The epoch and the batch in one bracket, as in PyTorch's tutorial.
        >>> [1,  2000] loss: 2.217
        >>> [1,  4000] loss: 1.865
        loss: (2000, 2.217), (4000, 1.865)""",
        r"^\[<epoch>,[ ]{0,8}<batch>\] "),
    Form("""OpenMMLab: the epoch of an evaluation, and its number of batches.
        >>> Epoch(train) [1][50/100]  loss: 2.3
        >>> Epoch(val) [1][20/20]  loss: 2.2
        loss: (50, 2.3)
        val/loss: (50, 2.2)""",
        r"\bEpoch\((?!train)\w+\)[ ]*\[<epoch>\]"),
    Form("""mmsegmentation 0.x: an evaluation, and its number of batches.
        >>> 2024-03-02 11:08:07,908 - mmseg - INFO - Iter [800/8000]\tlr: 9.195e-03, loss: 0.3859
        >>> 2024-03-02 11:08:55,005 - mmseg - INFO - Iter(val) [140]\taAcc: 0.9620, mIoU: 0.4810
        loss: (800, 0.3859)
        val/mIoU: (800, 0.481)""",
        r"\bIter\(val\)[ ]*\[#\]\t"),
    Form("""The epoch and the batch in brackets: torchvision, timm, OpenMMLab, PyTorch's examples, Swin, DCGAN.
        >>> Epoch: [0][  50/100]  Loss 6.91 (6.91)
        >>> Epoch: [1][  50/100]  Loss 6.81 (6.85)
        Loss: (50, 6.91), (150, 6.81)""",
        r"(?:\b[Ee]poch(?:\(train\))?|\bTrain|^(?=\[)):?[ \t]*\[?<epoch>(?:/<epoch_of>)?\]?[ \t]*[\[|][ ]*<batch>[ ]*/[ ]*<batch_of>\b"),
    Form("""The iteration in brackets: OpenMMLab, XGBoost, LightGBM, Flax, gpt-2-simple.
        >>> [0]\ttrain-rmse:0.6\tvalid-rmse:0.65
        >>> [10]\ttrain-rmse:0.5\tvalid-rmse:0.6
        train-rmse: (0, 0.6), (10, 0.5)
        valid-rmse: (0, 0.65), (10, 0.6)""",
        r"(?:\bIter\(train\)[ ]*\[[ ]*|^\[(?=\d+\]\t|\d+ \| \d)|\.py:\d{1,6}\] \[(?=\d+\] \w+=))<step>(?:/<step_of>)?(?:\]| \|)"),
    Form("""tqdm: a progress bar for an epoch or for all steps.
        >>> 50%|█████     | 50/100 [00:01<00:01, 45.1it/s, loss=0.5]
        >>> 100%|█████████| 100/100 [00:02<00:00, 45.1it/s, loss=0.4]
        loss: (50, 0.5), (100, 0.4)""",
        r"(?:\|[ ]*|^[ \t]*(?=\d+/\d+ \[\d+:\d\d))<batch>/(?:<batch_of>|\?)[ ]*\["),
)  # fmt: skip
"""The first one that matches a line is used."""
