"""Planted secrets are found, whatever kind they are of; figures, names of models, shapes and hashes stay."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import time
from pathlib import Path

import pytest
from tests.service.intake.planted import KINDS, planted

from oomdoc.intake.redact import mask

EACH = 4
BENIGN = """\
sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
model-00001-of-00004.safetensors: 4f3c2a1b0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a
commit 668bbe1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d
Checkpoint md5 d41d8cd98f00b204e9800998ecf8427e ok
torch.Size([4, 8192, 152064]) torch.bfloat16 cuda:0
Qwen/Qwen2.5-7B-Instruct meta-llama/Llama-3.1-8B deepseek-ai/DeepSeek-V3
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
max_new_tokens: 4096, pad_token_id=151643, eos_token: <|im_end|>, bos_token_id: 1
num_tokens=123456789 tokens per second: 1234567890
--max-num-batched-tokens 8192 --tokenizer-mode auto --input_key prompt --label_key response
--use_auth_token False --trust-remote-code
key: value  keys: 12  key_value_heads=8  attention key shape (4, 32, 8192, 128)
password: null  token: null  api_key: ""  secret: ${SECRET}  HF_TOKEN=$HF_TOKEN
HF_TOKEN=os.environ["HF_TOKEN"]
Token is valid (permission: read).
backward pass: 12345 ms, forward pass: 2345 ms, passes: 3
self.device = torch.device("cuda"); self.model.config.hidden_size
torch.nn.functional.scaled_dot_product_attention at::native::softmax c10::cuda::CUDACachingAllocator
File "/usr/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
File "/opt/conda/lib/python3.10/site-packages/transformers/trainer.py", line 2241
--model /data/models/Qwen2.5-7B --dataset /data/datasets/alpaca/train.json --out /mnt/nvme/checkpoints/x
see https://pytorch.org/docs/stable/notes/cuda.html#environment-variables and https://github.com/a/b/issues/1
https://huggingface.co/Qwen/Qwen2.5-7B/resolve/main/config.json
NCCL version 2.21.5.1 cuda 12.4.1.0 driver 550.54.15
GPU 00000000:07:00.0 at 10:21:33:44 UUID: GPU-8f7a6b5c-1234-5678-9abc-def012345678
2025-01-01 12:00:00,000 step 100 loss 1.2345 lr 1e-05 grad_norm 0.9
0x7f3b2c1d0e9f [0x7f3b2c1d] std::vector<int>::push_back
train_loss: 0.123, ppl: 1.13, mem: 23.69GiB/24.00GiB
tried to allocate 17179869184 bytes, phone home 0, call 13958643712 of malloc
frame #3: _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIN3c108BFloat16EEENS_6detail5ArrayIPcLi3EEEEEviT0_T1_
Cijk_Alik_Bljk_HHS_BH_MT128x128x16_SE_APM1_AF0EM8_AF1EM1_AMAS3_ASE_ASEM1_BL1_DTL0_EPS1_FL1_GRVW8
PeftModelForSeq2SeqLM Wav2Vec2ForPreTraining CppMicroGemmWoQInt4Avx512 ConvBnReLU2dAndLinearReLU
"sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"
curl http://localhost:8000/v1/completions -d '{"model": "meta-llama/Llama-3.1-70B-Instruct", "prompt": "once upon"}'
Qwen2VLForConditionalGeneration LlamaForSequenceClassification Phi3SmallForCausalLM DeepseekV3MoE
"integrity": "sha512-x8Kq3Vw9Zr2Lm5Tn7Yb1Qc4Dj6Hf0GsAeRuPiOk"
- name: MASTER_PORT
  value: "29500"
kubectl create configmap sizes --from-literal=batch=32 --from-literal=model=llama
echo "epoch 3 done" >> train.log; echo 1 > /proc/sys/vm/overcommit_memory; echo model > tokenizer_name.txt
re.compile("\\\\d+\\\\s+\\\\w") failed.\\nTraceback\\n at \\\\?\\C: and \\\\.\\pipe
INFO:trainer:120:loss:0.12 a.c:12:34:warning:unused 0000:07:00:0:1 image:5000:latest
-rw-r--r-- 1 root root 14G Jan  1 00:00 model.safetensors
root 1 0.0 0.1 12345 6789 ? Ss 10:00 0:01 /sbin/init
| model | tokens | peak GiB |
token,logprob,rank
step  tokens  loss
密码学数据集 3 epochs，口令识别模型 Qwen2.5-7B
pin_memory: True  PIN 4 cores  pw = 3
the tokenizer's key is:
vocab_size151936
unexpected key(s) in state_dict: model.layers.0.self_attn.q_proj.weight
config,batch_size,max_tokens
llama8b,4,4096
| Key | Value |
|---|---|
| hidden_size | 4096x2048 |
JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
step 12 of R 10:20:30 took 2 s  12 a b c R 7
""".splitlines()


def leaked(masked: str, secret: str) -> bool:
    """The secret, or a half of it that is enough to guess the rest."""
    half = max(6, len(secret) // 2)
    return secret in masked or secret[:half] in masked or secret[-half:] in masked


def test_there_are_enough_of_them() -> None:
    assert len(KINDS) >= 60
    assert sum(1 for _ in planted(EACH)) >= 300


def test_planted_secrets_are_masked() -> None:
    found = list(planted(EACH))
    survived = [(kind, mask(text).text) for kind, text, secret in found if leaked(mask(text).text, secret)]
    assert len(survived) <= 0.01 * len(found), survived[:10]


def test_masking_them_can_be_undone_and_keeps_lines() -> None:
    for kind, text, _ in planted(EACH):
        masked = mask(text)
        assert masked.restore() == text, kind
        assert masked.text.count("\n") == text.count("\n"), kind
        assert mask(masked.text).text == masked.text, kind


def test_a_second_opinion() -> None:
    """The patterns of detect-secrets, which are somebody else's, find nothing in what was masked."""
    plugins = importlib.import_module("detect_secrets.plugins")
    left_out = {"high_entropy_strings", "ip_public", "keyword", "base"}
    detectors = []
    for module in pkgutil.iter_modules(plugins.__path__):
        if module.name in left_out:
            continue
        loaded = importlib.import_module(f"detect_secrets.plugins.{module.name}")
        detectors += [c() for _, c in inspect.getmembers(loaded, inspect.isclass) if c.__module__ == loaded.__name__]
    assert len(detectors) >= 20
    seen, left = 0, []
    for kind, text, secret in planted(EACH):
        after = mask(text).text
        for detector in detectors:
            # A header alone, with nothing under it, is no key.
            if type(detector).__name__ == "PrivateKeyDetector":
                continue
            seen += any(secret[:8] in str(hit) for hit in detector.analyze_string(text))
            left += [(kind, str(hit)) for hit in detector.analyze_string(after) if "<" not in str(hit)]
    assert seen > 50
    assert not left, left[:5]


@pytest.mark.parametrize("line", BENIGN)
def test_what_diagnosis_needs_stays(line: str) -> None:
    assert mask(line).text == line


def test_lines_together_stay_as_they_are() -> None:
    text = "\n".join(BENIGN)
    assert mask(text).text == text


def test_hardly_a_line_of_ordinary_text_is_touched(root: Path) -> None:
    files = [
        *root.glob("cases/*/*.yaml"),
        *root.glob("kb/oomkb/memory/*.py"),
        *root.glob("examples/*/*"),
        root / "README.md",
    ]
    lines = [line for file in files if file.is_file() for line in file.read_text("utf-8").splitlines() if line.strip()]
    touched = [(line, masked) for line in lines if (masked := mask(line).text) != line]
    assert len(lines) > 10_000
    assert len(touched) <= 0.005 * len(lines), touched[:20]


@pytest.mark.parametrize(
    "unit",
    ["WANDB_API_KEY=", "密码", "token ", "password,a\n", "|key|a|\n", "key:\n", "auth-user-pass\na\n", "a  token\n"],
)
def test_masking_takes_time_in_proportion(unit: str) -> None:
    """Eight times the text may take some sixteen times as long, not sixty-four; and little is little."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        mask(text)
        return time.process_time() - start

    assert any(seconds(160_000) < max(20 * seconds(20_000), 1.0) for _ in range(3))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("connect to gpu-17.cluster.corp.example.internal failed", "gpu-17.cluster"),
        ("worker trainer-0.trainer.ml.svc:29500", "trainer-0.trainer.ml"),
        ("listening on node7.hpc.tum-cluster.com:29500", "node7.hpc"),
        ("rendezvous at fe80::1ff:fe23:4567:890a", "fe80::1ff"),
        ("peer 2001:db8::17 lost", "2001:db8::17"),
        ("--output_dir /data/zhangsan/runs/7", "zhangsan"),
        ("loading /mnt/nvme0/data/jsmith/x.bin", "jsmith"),
        ("/scratch/users/anna.b/ckpt", "anna.b"),
        ("联系人 张三 手机 13812345678", "13812345678"),
        ("微信同号186-1234-5678", "1234-5678"),
        ("tel: +86 139 1234 5678", "1234 5678"),
        ("call +1 (415) 555-0134", "555-0134"),
        ("身份证 11010119900307783X", "19900307"),
        ("[user]\n\tname = Wei Zhang\n\temail = wz@qq.com", "Wei Zhang"),
        ("Author: Maria Garcia <maria.g@bigcorp.example>", "Maria Garcia"),
        ("Signed-off-by: Maria Garcia <maria.g@bigcorp.example>", "maria.g"),
        ("srun: error: gpunode042: task 3: Out Of Memory", "gpunode042"),
        ("slurmstepd: error: *** JOB 123 ON cn-a17-04 CANCELLED ***", "cn-a17-04"),
        ("NodeName=dgx-h100-23 Arch=x86_64", "dgx-h100-23"),
        ("c:\\users\\jsmith\\anaconda3", "jsmith"),
        (r"OSError: \\nas-ml01\share\ckpt.pt", "nas-ml01"),
        (r"'\\\\nas-ml01\\share\\ckpt.pt'", "nas-ml01"),
        ("mount -t cifs //filer7/scratch /mnt/x", "filer7"),
        ("  812345       gpu  llama-sf  zhangsan  R 1-02:03:04      2 gpu[01-02]", "zhangsan"),
        ("  812345       gpu  my run 2  zhangsan  R 1-02:03:04      2 gpu[01-02]", "gpu[01"),
        ("812346_[1-9] a100,h100 bash lisi PD 0:00 1 (Priority)", "lisi"),
        ("squeue -t R -u lisi", "lisi"),
        ("lisi     12345 99.0  3.2 1234567 23456 ?        Rl   10:00   1:23 python train.py", "lisi"),
        ("-rw-r--r-- 1 lisi users 14G Jan  1 00:00 model.safetensors", "lisi"),
        ("C:/Users/lena.k/AppData", "lena.k"),
        ("wandb: Currently logged in as: weizhang (lab). Use", "weizhang"),
        ("View run at https://wandb.ai/weizhang-lab/proj/runs/ab12cd34", "weizhang"),
    ],
)
def test_places_and_people_are_masked(text: str, secret: str) -> None:
    masked = mask(text)
    assert secret not in masked.text
    assert masked.restore() == text
