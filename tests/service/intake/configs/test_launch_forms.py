"""How many cards and machines each way of starting a run comes to."""

from __future__ import annotations

from typing import Final

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch, read_documents

HF: Final = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --bf16 --deepspeed ds.json --output_dir o"

FORMS: Final[tuple[tuple[str, str, int, int | None], ...]] = (
    (
        "slurm nodes torchrun nproc",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --mem=0\ntorchrun --nproc-per-node 8 train.py @HF",
        16,
        2,
    ),
    (
        "slurm -N torchrun nproc",
        "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node=8 --nnodes=$SLURM_NNODES train.py @HF",
        16,
        2,
    ),
    ("slurm gpus total", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus=16\nsrun python train.py @HF", 16, 2),
    ("slurm -G total", "#!/bin/bash\n#SBATCH -N2\n#SBATCH -G 16\nsrun python train.py @HF", 16, 2),
    (
        "slurm ntasks-per-node gpus-per-task",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1\nsrun python train.py @HF",
        16,
        2,
    ),
    (
        "slurm one task per node",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node 8 train.py @HF",
        16,
        2,
    ),
    (
        "slurm nodes accelerate num_processes total",
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nsrun accelerate launch --num_processes 16 --num_machines 2 train.py @HF",
        16,
        2,
    ),
    (
        "slurm nodes, nnodes=1 explicit",
        "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\ntorchrun --nnodes 1 --nproc_per_node 4 train.py @HF",
        4,
        1,
    ),
    (
        "slurm nodes range",
        "#!/bin/bash\n#SBATCH --nodes=2-4\n#SBATCH --gres=gpu:8\nsrun torchrun --nproc_per_node 8 train.py @HF",
        16,
        2,
    ),
    (
        "slurm standalone on 2",
        "#!/bin/bash\n#SBATCH --nodes=2\ntorchrun --standalone --nproc-per-node 8 train.py @HF",
        8,
        1,
    ),
    ("srun -N", "srun -N 2 --ntasks-per-node=8 --gres=gpu:8 python train.py @HF", 16, 2),
    ("salloc", "salloc --nodes=2 --gpus-per-node=8\nsrun torchrun --nproc_per_node=8 train.py @HF", 16, 2),
    ("torchrun elastic", "torchrun --nnodes=1:4 --nproc_per_node=8 train.py @HF", 32, 4),
    ("mpirun -np", "mpirun -np 16 python train.py @HF", 16, None),
    ("mpirun -np -H", "mpirun -np 16 -H server1:8,server2:8 python train.py @HF", 16, 2),
    ("mpirun -npernode", "mpirun -np 16 -npernode 8 python train.py @HF", 16, 2),
    ("mpirun --map-by ppr", "mpirun -n 16 --map-by ppr:8:node python train.py @HF", 16, 2),
    ("horovodrun", "horovodrun -np 16 -H s1:8,s2:8 python train.py @HF", 16, 2),
    ("deepspeed include", "deepspeed --include worker-0:0,1,2,3@worker-1:0,1,2,3 train.py @HF", 8, 2),
    ("deepspeed include localhost", "deepspeed --include localhost:0,1 train.py @HF", 2, 1),
    ("accelerate machines", "accelerate launch --num_machines 2 --num_processes 16 train.py @HF", 16, 2),
    (
        "k8s pytorchjob",
        'apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            command: ["torchrun", "--nproc_per_node=8", "train.py", "--model_name_or_path", "Qwen/Qwen2.5-7B", "--per_device_train_batch_size", "1", "--bf16"]\n            resources:\n              limits:\n                nvidia.com/gpu: 8\n    Worker:\n      replicas: 3\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            command: ["torchrun", "--nproc_per_node=8", "train.py", "--model_name_or_path", "Qwen/Qwen2.5-7B", "--per_device_train_batch_size", "1", "--bf16"]\n            resources:\n              limits:\n                nvidia.com/gpu: 8\n',
        32,
        4,
    ),
    (
        "k8s deployment replicas serve",
        'apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 3\n  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai\n        args: ["--model", "Qwen/Qwen2.5-7B", "--tensor-parallel-size", "2"]\n        resources:\n          limits:\n            nvidia.com/gpu: 2\n',
        2,
        1,
    ),
    (
        "k8s mpijob",
        'apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      template:\n        spec:\n          containers:\n          - name: l\n            command: ["mpirun", "-np", "16", "python", "train.py", "--model_name_or_path", "Qwen/Qwen2.5-7B", "--per_device_train_batch_size", "1", "--bf16"]\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: w\n            resources:\n              limits:\n                nvidia.com/gpu: 8\n',
        16,
        2,
    ),
    (
        "trainjob",
        'apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  trainer:\n    numNodes: 2\n    numProcPerNode: 8\n    command: ["torchrun", "train.py", "--model_name_or_path", "Qwen/Qwen2.5-7B", "--per_device_train_batch_size", "1", "--bf16"]\n    resourcesPerNode:\n      limits:\n        nvidia.com/gpu: 8\n',
        16,
        2,
    ),
    (
        "skypilot",
        "num_nodes: 2\nresources:\n  accelerators: H100:8\nrun: |\n  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE train.py @HF\n",
        16,
        2,
    ),
    (
        "ray scaling",
        "import ray\nfrom ray.train import ScalingConfig\nfrom ray.train.torch import TorchTrainer\nfrom transformers import TrainingArguments\ndef f():\n    args=TrainingArguments(output_dir='o',per_device_train_batch_size=1,bf16=True)\nt=TorchTrainer(f, scaling_config=ScalingConfig(num_workers=16, use_gpu=True))\nt.fit()\n",
        16,
        None,
    ),
    (
        "lightning code",
        "import lightning as L\ntrainer=L.Trainer(devices=8, num_nodes=2, strategy='fsdp', precision='bf16-mixed')\n",
        16,
        2,
    ),
    ("pbs", "#!/bin/bash\n#PBS -l select=2:ngpus=8:ncpus=64\nmpirun -np 16 python train.py @HF", 16, 2),
)
"""Name, text (``@HF``: a trainer's arguments), cards in all, machines (``None``: not said)."""


def _file(text: str) -> str:
    return "job.yaml" if text.startswith(("api", "num_")) else "train.py" if text.startswith("import") else "run.sh"


@pytest.mark.parametrize(("text", "total", "nodes"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_cards_and_machines(text, total, nodes):
    reading = read_documents(Source(_file(text), text.replace("@HF", HF)))
    facts = {fact.name: fact.value for fact in reading.facts if fact.stated}
    assert facts.get("gpu_count") == total
    assert facts.get("nodes", 1) == (nodes or 1)


def test_a_batch_job_below_a_log_keeps_its_requests():
    script = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\n\nsrun torchrun --nproc-per-node 8 train.py " + HF
    log = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n\nthe script:\n\n" + script
    assert read([Source("slurm.log", log)]).facts["gpu_count"].value == 16


def test_a_number_that_was_worked_out_is_not_written_over():
    text = "mpirun -np 16 -npernode 8 python train.py " + HF
    assert patch(text, filename="run.sh", changes={"nodes": 4}).text == text
