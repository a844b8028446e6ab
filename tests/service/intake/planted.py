"""Secrets of every kind that people paste, made up from a seed, each in a line as logs and commands have it."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator

__all__ = ["KINDS", "planted"]

Made = tuple[str, str]
"""A line and the secret in it."""
ALNUM, HEX, UPPER = string.ascii_letters + string.digits, "0123456789abcdef", string.ascii_uppercase + string.digits
B64 = ALNUM + "+/"


class Maker:
    """Random strings from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def of(self, letters: str, count: int) -> str:
        return "".join(self.rng.choice(letters) for _ in range(count))

    def hex(self, count: int) -> str:
        return self.of(HEX, count)

    def alnum(self, count: int) -> str:
        """With a digit, as every issuer's has."""
        return self.of(ALNUM, count - 2) + self.of(string.digits, 1) + self.of(string.ascii_letters, 1)

    def word(self) -> str:
        return self.rng.choice(
            ["hunter2", "Tr0ub4dor&3", "s3cr3t!pw", "correct-horse-9", "letmein2024", "P@ssw0rd1", "qwerty77"]
        )

    def uuid(self) -> str:
        return "-".join(self.hex(n) for n in (8, 4, 4, 4, 12))

    def pem(self, joint: str) -> str:
        return joint.join(self.of(B64, 64) for _ in range(4))


def token(form: Callable[[Maker], str], line: str = "INFO using token @@ for upload") -> Callable[[Maker], Made]:
    def make(m: Maker) -> Made:
        secret = form(m)
        return line.replace("@@", secret), secret

    return make


def pem(header: str, joint: str, around: str) -> Callable[[Maker], Made]:
    def make(m: Maker) -> Made:
        body = m.pem(joint)
        text = f"-----BEGIN {header}-----{joint}{body}{joint}-----END {header}-----"
        return around.replace("@@", text), body.split(joint)[1]

    return make


def basic(m: Maker) -> Made:
    secret = base64.b64encode(f"alice:{m.word()}{m.alnum(6)}".encode()).decode()
    return f"> Authorization: Basic {secret}", secret


def service_account(m: Maker) -> Made:
    body = m.pem("\\n")
    account = {"type": "service_account", "private_key_id": m.hex(40), "client_email": "x@y.iam.gserviceaccount.com"}
    text = (
        json.dumps(account)[:-1]
        + f', "private_key": "-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----\\n"}}'
    )
    return text, body.split("\\n")[2]


KINDS: dict[str, Callable[[Maker], Made]] = {
    "huggingface": token(lambda m: "hf_" + m.alnum(34)),
    "huggingface org": token(lambda m: "api_org_" + m.alnum(34)),
    "huggingface login call": token(lambda m: "hf_" + m.alnum(34), 'huggingface_hub.login(token="@@")'),
    "huggingface cli": token(lambda m: "hf_" + m.alnum(34), "huggingface-cli login --token @@"),
    "openai": token(lambda m: "sk-" + m.alnum(48)),
    "openai project": token(lambda m: "sk-proj-" + m.alnum(40) + "_" + m.alnum(30), "OPENAI_API_KEY: @@"),
    "anthropic": token(lambda m: "sk-ant-api03-" + m.alnum(80)),
    "openrouter": token(lambda m: "sk-or-v1-" + m.hex(64)),
    "groq": token(lambda m: "gsk_" + m.alnum(52)),
    "xai": token(lambda m: "xai-" + m.alnum(80)),
    "perplexity": token(lambda m: "pplx-" + m.alnum(48)),
    "replicate": token(lambda m: "r8_" + m.alnum(37)),
    "together": token(lambda m: "tgp_v1_" + m.alnum(43)),
    "fireworks": token(lambda m: "fw_" + m.alnum(24)),
    "cerebras": token(lambda m: "csk-" + m.alnum(48)),
    "nvidia": token(lambda m: "nvapi-" + m.alnum(64)),
    "runpod": token(lambda m: "rpa_" + m.of(UPPER, 42)),
    "jina": token(lambda m: "jina_" + m.hex(32) + m.alnum(30)),
    "langsmith": token(lambda m: f"lsv2_pt_{m.hex(32)}_{m.hex(10)}"),
    "pinecone": token(lambda m: "pcsk_" + m.alnum(60)),
    "modelscope": token(lambda m: "ms-" + m.uuid()),
    "dashscope": token(lambda m: "sk-" + m.hex(32), "export DASHSCOPE_API_KEY=@@"),
    "zhipu": token(lambda m: f"{m.hex(32)}.{m.alnum(16)}", "ZHIPUAI_API_KEY=@@"),
    "wandb login": token(lambda m: m.hex(40), "$ wandb login @@"),
    "wandb login relogin": token(lambda m: m.hex(40), "wandb login --relogin @@"),
    "wandb call": token(lambda m: m.hex(40), 'wandb.login(key="@@")'),
    "wandb variable": token(lambda m: m.hex(40), "export WANDB_API_KEY=@@"),
    "wandb local": token(lambda m: "local-" + m.hex(40)),
    "wandb docker": token(lambda m: m.hex(40), "docker run -e WANDB_API_KEY=@@ -it pytorch"),
    "comet": token(lambda m: m.alnum(25), "COMET_API_KEY=@@ python train.py"),
    "neptune": token(lambda m: "eyJhcGlfYWRkcmVzcyI6" + m.of(B64, 80) + "==", "NEPTUNE_API_TOKEN='@@'"),
    "clearml": token(lambda m: m.alnum(40), 'secret_key = "@@"'),
    "swanlab": token(lambda m: m.alnum(21), "swanlab login -k @@"),
    "github": token(lambda m: "ghp_" + m.alnum(36), "git clone https://@@@github.com/a/b"),
    "github fine": token(lambda m: f"github_pat_{m.alnum(22)}_{m.alnum(59)}"),
    "gitlab": token(lambda m: "glpat-" + m.alnum(20)),
    "bitbucket": token(lambda m: "ATBB" + m.alnum(32)),
    "atlassian": token(lambda m: "ATATT3xFfGF0" + m.alnum(100)),
    "aws id": token(lambda m: "AKIA" + m.of(UPPER, 16)),
    "aws secret": token(lambda m: m.of(B64, 38) + "a1", "aws_secret_access_key = @@"),
    "aws session": token(lambda m: "FwoGZXIv" + m.of(B64, 120), "AWS_SESSION_TOKEN=@@"),
    "s3 signature": token(
        lambda m: m.hex(64), "GET https://b.s3.amazonaws.com/m.bin?X-Amz-Expires=300&X-Amz-Signature=@@ HTTP/1.1"
    ),
    "s3 old signature": token(
        lambda m: m.alnum(27) + "%3D", "https://b.s3.amazonaws.com/x?AWSAccessKeyId=AKIAABCDEFGHIJKLMNOP&Signature=@@"
    ),
    "google": token(lambda m: "AIza" + m.alnum(35)),
    "google oauth": token(lambda m: "ya29." + m.alnum(80)),
    "google client": token(lambda m: "GOCSPX-" + m.alnum(28)),
    "google service account": service_account,
    "azure account key": token(
        lambda m: m.of(B64, 86) + "==",
        "DefaultEndpointsProtocol=https;AccountName=store;AccountKey=@@;EndpointSuffix=core.windows.net",
    ),
    "azure sas": token(
        lambda m: m.alnum(40) + "%2B" + m.alnum(3) + "%3D",
        "https://x.blob.core.windows.net/c/f?sv=2022-11-02&sp=r&sig=@@",
    ),
    "azure openai": token(lambda m: m.hex(32), "AZURE_OPENAI_API_KEY=@@"),
    "azure header": token(lambda m: m.hex(32), "Ocp-Apim-Subscription-Key: @@"),
    "azure client secret": token(lambda m: m.alnum(8) + "~" + m.alnum(30), "AZURE_CLIENT_SECRET=@@"),
    "aliyun id": token(lambda m: "LTAI" + m.alnum(20)),
    "aliyun secret": token(lambda m: m.alnum(30), "OSS_ACCESS_KEY_SECRET=@@"),
    "oss url": token(
        lambda m: m.alnum(28), "https://b.oss-cn-beijing.aliyuncs.com/m?OSSAccessKeyId=LTAIabcdefgh1234&Signature=@@"
    ),
    "tencent": token(lambda m: "AKID" + m.alnum(32)),
    "volcengine": token(lambda m: "AKLT" + m.alnum(44)),
    "baidu": token(lambda m: f"bce-v3/ALTAK-{m.alnum(21)}/{m.hex(40)}"),
    "stripe": token(lambda m: "sk_live_" + m.alnum(24)),
    "stripe webhook": token(lambda m: "whsec_" + m.alnum(32)),
    "sendgrid": token(lambda m: f"SG.{m.alnum(22)}.{m.alnum(43)}"),
    "mailgun": token(lambda m: "key-" + m.hex(32)),
    "mailchimp": token(lambda m: m.hex(32) + "-us12"),
    "twilio": token(lambda m: "SK" + m.hex(32)),
    "square": token(lambda m: "sq0atp-" + m.alnum(22)),
    "shopify": token(lambda m: "shpat_" + m.hex(32)),
    "slack": token(lambda m: f"xoxb-{m.of('123456789', 12)}-{m.of('123456789', 12)}-{m.alnum(24)}"),
    "slack app": token(lambda m: f"xapp-1-{m.of(UPPER, 11)}-{m.of('123456789', 13)}-{m.hex(64)}"),
    "slack hook": token(lambda m: m.alnum(24), "https://hooks.slack.com/services/T0001/B0001/@@"),
    "discord": token(lambda m: f"M{m.alnum(23)}.G{m.alnum(5)}.{m.alnum(38)}"),
    "telegram": token(lambda m: f"{m.of('123456789', 10)}:AA{m.alnum(33)}"),
    "feishu hook": token(lambda m: m.uuid(), "POST https://open.feishu.cn/open-apis/bot/v2/hook/@@"),
    "dingtalk": token(lambda m: m.hex(64), "https://oapi.dingtalk.com/robot/send?access_token=@@"),
    "npm": token(lambda m: "npm_" + m.alnum(36)),
    "npmrc": token(lambda m: m.uuid(), "//registry.npmjs.org/:_authToken=@@"),
    "pypi": token(lambda m: "pypi-AgEIcHlwaS5vcmc" + m.alnum(100)),
    "docker": token(lambda m: "dckr_pat_" + m.alnum(27)),
    "docker login": token(lambda m: m.word() + m.alnum(4), "docker login -u bob -p @@ registry.corp.example"),
    "digitalocean": token(lambda m: "dop_v1_" + m.hex(64)),
    "databricks": token(lambda m: "dapi" + m.hex(32)),
    "vault": token(lambda m: "hvs." + m.alnum(90)),
    "doppler": token(lambda m: "dp.pt." + m.alnum(43)),
    "pulumi": token(lambda m: "pul-" + m.hex(40)),
    "terraform": token(lambda m: f"{m.alnum(14)}.atlasv1.{m.alnum(67)}"),
    "postman": token(lambda m: f"PMAK-{m.hex(24)}-{m.hex(34)}"),
    "sentry": token(lambda m: "sntrys_" + m.alnum(80)),
    "grafana": token(lambda m: f"glsa_{m.alnum(32)}_{m.hex(8)}"),
    "new relic": token(lambda m: "NRAK-" + m.of(UPPER, 27)),
    "tailscale": token(lambda m: f"tskey-auth-{m.alnum(12)}CNTRL-{m.alnum(32)}"),
    "age": token(lambda m: "AGE-SECRET-KEY-1" + m.of(UPPER, 58)),
    "jwt": token(lambda m: f"eyJhbGciOiJIUzI1NiJ9.eyJ{m.alnum(60)}.{m.alnum(43)}"),
    "bearer": token(lambda m: m.alnum(40), "curl -H 'Authorization: Bearer @@' https://api"),
    "basic": basic,
    "api key header": token(lambda m: m.alnum(32), "X-API-Key: @@"),
    "gitlab header": token(lambda m: m.alnum(20), 'curl --header "PRIVATE-TOKEN: @@" https://gitlab'),
    "cookie": token(lambda m: m.alnum(40), "Cookie: theme=dark; sessionid=@@; csrftoken=abc"),
    "curl cookie, lines broken": token(lambda m: m.alnum(30), "curl 'https://h/api' \\\n  -b '_xsrf=@@; lang=zh'"),
    "expect over lines": token(lambda m: m.word() + "_" + m.alnum(6), 'expect "*assword:"\nsend "@@\\r"'),
    "cmdlet": token(lambda m: m.word() + "#" + m.alnum(6), '$cred = ConvertTo-SecureString "@@" -AsPlainText -Force'),
    "password with a remark": token(lambda m: m.word() + "940" + m.alnum(4), "初始密码:@@(登录后请修改)"),
    "set-cookie": token(lambda m: m.alnum(40), "Set-Cookie: session=@@; HttpOnly"),
    "mysql": token(lambda m: m.word() + m.alnum(3), "mysql -h db -u root -p@@ metrics"),
    "sshpass": token(lambda m: m.word() + m.alnum(3), "sshpass -p '@@' ssh worker1"),
    "curl user": token(lambda m: m.word() + m.alnum(3), "curl -u alice:@@ https://artifacts/x"),
    "redis": token(lambda m: m.word() + m.alnum(3), "redis-cli -h cache -a @@ ping"),
    "db password flag": token(lambda m: m.word() + m.alnum(3), "python serve.py --db-password @@ --port 80"),
    "password flag": token(lambda m: m.word() + m.alnum(3), "jupyter lab --password=@@"),
    "token flag": token(lambda m: m.alnum(24), "python push.py --hub_token @@ --push_to_hub"),
    "api key flag": token(lambda m: m.alnum(24), "vllm serve Qwen/Qwen2.5-7B --api-key @@ --port 8000"),
    "numeric password": token(lambda m: m.of(string.digits, 8), "password: @@"),
    "env password": token(lambda m: m.word() + m.alnum(3), "PGPASSWORD=@@ psql -h db"),
    "yaml password": token(lambda m: m.word() + m.alnum(3), "  db_password: '@@'"),
    "json password": token(lambda m: m.word() + m.alnum(3), '{"user": "bob", "password": "@@", "port": 1}'),
    "python password": token(lambda m: m.word() + m.alnum(3), "smtp = connect(user='bob', passwd='@@')"),
    "password in words": token(lambda m: m.word() + m.alnum(3), "the password is @@ by the way"),
    "chinese password": token(lambda m: m.word() + m.alnum(3), "服务器密码：@@"),
    "chinese password is": token(lambda m: m.of(string.digits, 9), "root 密码是 @@，帮忙看看"),
    "chinese key": token(lambda m: m.alnum(24), "密钥: @@"),
    "postgres url": token(lambda m: m.word() + m.alnum(3), "postgresql://bob:@@@db:5432/x"),
    "url with slash": token(lambda m: m.alnum(5) + "/" + m.alnum(6), "DATABASE_URL=postgres://bob:@@@db.corp/x"),
    "redis url": token(lambda m: m.alnum(12), "redis://:@@@cache:6379/0"),
    "mongo url": token(lambda m: m.alnum(12), "mongodb+srv://bob:@@@cluster0.abc.mongodb.net/x"),
    "proxy": token(lambda m: m.alnum(10), "http_proxy=http://bob:@@@proxy:3128"),
    "pip index": token(lambda m: m.alnum(20), "pip install --index-url https://__token__:@@@pypi.corp/simple x"),
    "jupyter": token(lambda m: m.hex(48), "http://127.0.0.1:8888/lab?token=@@"),
    "url key": token(lambda m: m.alnum(20), "GET /v1/models?api_key=@@&limit=1"),
    "kaggle": token(lambda m: m.hex(32), '{"username":"bob","key":"@@"}'),
    "rsa": pem("RSA PRIVATE KEY", "\n", "@@"),
    "openssh": pem("OPENSSH PRIVATE KEY", "\n", "@@"),
    "ec escaped": pem("EC PRIVATE KEY", "\\n", 'key = "@@"'),
    "pkcs8 in yaml": pem("PRIVATE KEY", "\n    ", "tls:\n  key: |\n    @@"),
    "connection string": token(
        lambda m: m.of(B64, 43) + "=", "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=@@"
    ),
    "generic env key": token(lambda m: m.alnum(32), "export TAVILY_API_KEY=@@"),
    "generic secret env": token(lambda m: m.alnum(32), "APP_SECRET: @@"),
    "client secret": token(lambda m: m.alnum(32), '"client_secret": "@@",'),
    "refresh token": token(lambda m: "1//0" + m.alnum(60), '"refresh_token": "@@"'),
    "netrc line": token(lambda m: m.hex(40), "machine api.wandb.ai login user password @@"),
    "netrc lines": token(lambda m: m.alnum(12), "machine huggingface.co\n  login me\n  password @@"),
    "pem behind ranks": pem("EC PRIVATE KEY", "\n[rank0]: ", "[rank0]: @@"),
    "pem in yaml": pem("PRIVATE KEY", "\n    ", "tls.key: |\n    @@"),
    "kubernetes variable": token(lambda m: m.hex(40), "- name: WANDB_API_KEY\n  value: @@"),
    "kubernetes variable on a line": token(lambda m: m.alnum(12), "- {name: DB_PASSWORD, value: @@}"),
    "kubernetes secret": token(lambda m: m.alnum(40), "apiVersion: v1\nkind: Secret\ndata:\n  HF: @@"),
    "docker's file": token(lambda m: m.alnum(36) + "==", '{"auths": {"r.example.com": {"auth": "@@"}}}'),
    "wandb asks": token(lambda m: m.hex(40), "wandb: Paste an API key from your profile and hit enter: @@"),
    "ossutil": token(lambda m: m.alnum(30), "ossutil config -e oss-cn-beijing.aliyuncs.com -i abc -k @@"),
    "obsutil": token(lambda m: m.alnum(40), "obsutil config -i=ABCDEFGHIJ -k=@@ -e=obs.example.com"),
    "minio": token(lambda m: m.alnum(10), "mc alias set minio http://127.0.0.1:9000 minioadmin @@"),
    "cookie of curl": token(lambda m: m.alnum(20), "curl https://example.com/api -b '_session=@@'"),
    "cookies of requests": token(lambda m: m.alnum(12), "cookies={'SESSDATA': '@@'}"),
    "telegram address": token(
        lambda m: m.of("123456789", 10) + ":AA" + m.alnum(33), "https://t.example.com/bot@@/send"
    ),
    "serverchan": token(lambda m: "SCT" + m.alnum(30), "https://sctapi.ftqq.com/@@.send"),
    "user of curl": token(lambda m: f"secret_train_{m.hex(32)}", "curl -u @@: https://cloud.example.com/instances"),
    "modal": token(lambda m: "ak-" + m.alnum(22), "modal token set --token-id @@"),
    "sudo": token(lambda m: m.word(), "echo @@ | sudo -S nvidia-smi -r"),
    "docker by standard input": token(lambda m: m.alnum(30), "echo @@ | docker login nvcr.io --password-stdin"),
    "sshpass variable": token(lambda m: m.word(), "SSHPASS=@@ sshpass -e ssh root@h"),
    "gradio": token(lambda m: m.word(), 'demo.launch(auth=("admin", "@@"))'),
    "anaconda": token(lambda m: "xy-" + m.uuid(), "conda config --add channels https://conda.anaconda.org/t/@@/org"),
    "encrypt key": token(lambda m: m.alnum(32), 'encrypt_key: "@@"'),
    "crypt": token(lambda m: "$6$" + m.alnum(16) + "$" + m.alnum(86), "root:@@:19000:0:99999:7:::"),
    "htpasswd": token(lambda m: "$apr1$" + m.alnum(8) + "$" + m.alnum(22), "admin:@@"),
    "entra client secret": token(lambda m: m.alnum(3) + "8Q~" + m.alnum(34), "az login --service-principal -p @@"),
    "kubeconfig key": token(lambda m: "LS0tLS1CRUdJTi" + m.alnum(80) + "==", "    client-key-data: @@"),
    "vault role": token(lambda m: m.uuid(), 'vault write auth/approle/login role_id="r" secret_id="@@"'),
    "datadog header": token(lambda m: m.hex(40), 'curl -H "DD-APPLICATION-KEY: @@"'),
    "twilio by its place": token(lambda m: m.hex(32), f'client = Client("AC{"0f" * 16}", "@@")'),
    "twilio behind a name": token(lambda m: m.hex(32), "rest.Client(account_sid, '@@')"),
    "key by its place": token(lambda m: m.hex(40), "api = wandb.Api(url, '@@')"),
    "pgpass line": token(lambda m: m.alnum(10), "db.example:5432:runs:train:@@"),
    "pgpass line with stars": token(lambda m: m.word(), "*:*:*:postgres:@@"),
    "pgpass of another port": token(lambda m: m.word(), "$ cat ~/.pgpass\nlocalhost:7777:runs:train:@@"),
    "pgpass written": token(lambda m: m.word(), 'echo "localhost:7777:runs:train:@@" >> ~/.pgpass'),
    "kubectl literal": token(lambda m: m.word(), "kubectl create secret generic hub --from-literal=HUB=@@"),
    "kubectl literal on a line of its own": token(
        lambda m: m.alnum(12), "kubectl -n ml create secret generic hub \\\n  --from-literal hub='@@' \\\n  --dry-run"
    ),
    "s3fs written": token(lambda m: m.alnum(40), "echo KEY:@@ > ${HOME}/.passwd-s3fs"),
    "s3fs behind a key": token(lambda m: m.alnum(40), "echo AKIA0123456789ABCDEF:@@ > /etc/passwd-s3fs"),
    "token written": token(lambda m: m.alnum(12), "printf @@ | sudo tee /root/.vault-token"),
    "json log, escaped quotes": token(lambda m: m.word(), '{"log": "DB_PASSWORD: \\"@@\\"\\n", "stream": "stdout"}'),
    "json log, twice escaped": token(lambda m: m.word(), '{"msg": "passwd: \\\\\\"@@\\\\\\""}'),
    "json log, a key": token(lambda m: m.hex(24), '{"message": "Experiment(api_key=\\"@@\\")"}'),
    "json log, letters by number": token(lambda m: m.word(), '{"msg": "\\u5bc6\\u7801: @@"}'),
    "json log, a sign by number": token(lambda m: m.word(), '{"msg": "\\u6570\\u636e\\u5e93\\u53e3\\u4ee4\\uff1a@@"}'),
    "json log, a verb by number": token(lambda m: m.word(), '{"msg": "\\u5bc6\\u7801\\u662f @@ "}'),
    "json pair of name and value": token(lambda m: m.word(), '{"name": "MYSQL_PASSWORD", "value": "@@"}'),
    "sql identified": token(lambda m: m.word(), "CREATE USER train IDENTIFIED BY '@@';"),
    "sql with password": token(lambda m: m.word(), "ALTER USER train WITH PASSWORD '@@';"),
    "xml element": token(lambda m: m.word(), "<db><password>@@</password></db>"),
    "xml attribute": token(lambda m: m.word(), '<add name="Password" value="@@" />'),
    "html quotes": token(lambda m: m.word().replace("&", "x"), "password=&quot;@@&quot;"),
    "html table": token(lambda m: m.word(), "<tr><td>password</td><td>@@</td></tr>"),
    "percent-encoded": token(lambda m: m.word().replace("&", "x"), "GET /login?next=x%26password%3D@@"),
    "field pass": token(lambda m: m.word().replace("correct-horse", "c0rrect-horse"), "[nas]\npass = @@"),
    "table row": token(lambda m: m.word(), "| user | train |\n| password | @@ |"),
    "arrow": token(lambda m: m.word(), "password → @@"),
    "typed": token(lambda m: m.word(), 'password: str = "@@"'),
    "german": token(lambda m: m.word(), "Kennwort: @@"),
    "german, the other": token(lambda m: m.word(), "Passwort: @@"),
    "french": token(lambda m: m.word(), "mot de passe : @@"),
    "spanish": token(lambda m: m.word(), "contraseña: @@"),
    "portuguese": token(lambda m: m.word(), "senha=@@"),
    "russian": token(lambda m: m.word(), "пароль: @@"),
    "chinese, traditional": token(lambda m: m.word(), "密碼：@@"),
    "chinese, in a sentence": token(lambda m: m.word(), "密码我设的是@@"),
    "chinese, a token": token(lambda m: m.hex(24), "token是@@"),
    "said of a place": token(
        lambda m: m.word().replace("correct", "c0rrect"), "the password to the node is `@@`, root"
    ),
    "said without a verb": token(lambda m: m.word(), "I log in with user root and password @@ there"),
    "smbclient": token(lambda m: m.word(), "smbclient //nas/models -U train%@@"),
    "htpasswd command": token(lambda m: m.word(), "htpasswd -b .htpasswd train @@"),
    "lftp": token(lambda m: m.word(), "lftp -u train,@@ sftp://nas"),
    "redis.conf": token(lambda m: m.word(), "port 6379\nrequirepass @@\n"),
    "url with an at sign": token(lambda m: f"p@{m.alnum(8)}", "RAY_REDIS=redis://default:@@@head:6379"),
    "url, a token alone": token(lambda m: m.hex(40), "pip install --index-url https://@@@pypi.corp.example/simple"),
    "url, a user with an at sign": token(lambda m: m.word(), "https://train@corp:@@@git.corp.example/x.git"),
    "authorization alone": token(lambda m: m.hex(32), "Authorization: @@"),
    "session token": token(lambda m: m.of(B64, 48) + "a1B2/x+" + m.of(B64, 80), '{"SessionToken": "@@"}'),
    "base64 in pieces": token(lambda m: "m3aZ/d2x/8NNCrafbcM/" + m.of(B64, 60), '".dockerconfigjson": "@@"'),
    "coloured": token(lambda m: "hf_" + m.alnum(34), "\x1b[32mHF_TOKEN\x1b[0m=\x1b[1m@@\x1b[0m"),
    "coloured, a password": token(lambda m: m.word(), "\x1b[36mpassword\x1b[0m: \x1b[1;33m@@\x1b[0m"),
    "coloured, a form alone": token(lambda m: "glpat-" + m.alnum(20), "\x1b[1;31m@@\x1b[0m was refused"),
    "rails": token(lambda m: m.hex(64), "secret_key_base: @@"),
    "airtable": token(lambda m: "pat" + m.alnum(14) + "." + m.hex(64), "airtable: @@"),
    "firebase": token(lambda m: m.alnum(11) + ":APA91b" + m.alnum(100), "registered @@"),
    "sent once": token(lambda m: m.of(string.digits, 6), "Your verification code is @@"),
    "sent once, chinese": token(lambda m: m.of(string.digits, 6), "验证码：@@"),
    "mail address of another script": token(lambda m: m.of("李雷韩梅王芳", 3) + "@例子.中国", "联系 @@"),
    "home on a share": token(lambda m: m.of(string.ascii_lowercase, 9), "/mnt/nfs/home/@@/run.sh: Killed"),
    "german telephone": token(lambda m: "+49 228 7" + m.of(string.digits, 6), "call @@ if it hangs"),
    "session token, hexadecimal": token(lambda m: "7c" + m.hex(30), "sessionToken: @@"),
    "names written together": token(lambda m: "7c" + m.hex(30), "AccessKeySecret=@@"),
    "variable in parts": token(lambda m: "7c" + m.hex(38), "WANDB__KEY=@@"),
    "variable in a sentence": token(lambda m: "7c" + m.hex(38), "Variable WANDB_API_KEY is @@"),
    "wandb said": token(lambda m: m.hex(40), "wandb: (3) key @@"),
    "ldap": token(lambda m: m.word(), "ldapsearch -D cn=train -w @@ -b dc=x"),
    "ldap file": token(lambda m: m.word(), "bindpw @@"),
    "powershell": token(lambda m: m.word(), '$c = ConvertTo-SecureString "@@" -AsPlainText -Force'),
    "windows user": token(lambda m: m.word(), "net user train @@ /add"),
    "expect": token(lambda m: m.word(), 'expect "password:"; send "@@\\r"'),
    "call with two arguments": token(lambda m: m.alnum(16), 'smtp.login("alert-bot@northloom.io", "@@")'),
    "dotted token": token(lambda m: f"24.{m.hex(32)}.2592000.1718000000.28-84", "# got access_token @@"),
    "account and password": token(lambda m: f"liu@{m.alnum(6)}#2", "账号/密码: liuyang07 / @@"),
    "pair in a flag": token(lambda m: "etcd-" + m.alnum(9), "etcdctl --user root:@@ get --prefix /x"),
    "pair in quotes": token(lambda m: m.word() + "%&", "curl -u dmitri:'@@' https://nexus/x"),
    "said again": token(lambda m: "oci-" + m.alnum(20), "+ REG_PASS='@@'\n+ echo @@\n+ skopeo copy 'pusher:@@'"),
    "quoted, with spaces": token(lambda m: f"bec0me {m.alnum(6)}!", "ansible_become_password='@@'"),
    "quoted, with an apostrophe": token(lambda m: f"it's-{m.alnum(6)}", 'su -c "export DB_PASS=\\"@@\\"; run"'),
    "column of an environment": token(lambda m: "tok-" + m.alnum(28).lower(), "      API_TOKEN:         @@"),
    "licence": token(lambda m: f"I3T2 {m.of(UPPER, 3)}7 GIW1 {m.of(UPPER, 3)}2 0D7U AG15", 'FEATURE x SIGN="@@"'),
    "key of options": token(lambda m: "PUJ7" + m.of(UPPER, 16), 'storage_options={"key": "@@"}'),
    "set by a call": token(lambda m: m.alnum(12), 'os.environ.setdefault("REGISTRY_PASS", "@@")'),
    "deep name": token(lambda m: m.word(), "spring.datasource.hikari.password=@@"),
    "word of another language": token(lambda m: m.word(), "mật khẩu: @@"),
    "chinese, in brackets": token(lambda m: m.word(), "口令「@@」"),
    "chinese, in other brackets": token(lambda m: m.word(), "密码『@@』"),
    "chinese, in a title's": token(lambda m: m.word(), "登录口令《@@》"),
    "chinese, in parentheses": token(lambda m: m.word().replace("rect-horse", "rect7horse"), "用户名(root) 密码(@@)"),
    "chinese, between waves": token(lambda m: m.word(), "密钥～@@～"),
    "chinese, without anything between": token(lambda m: m.word(), "ssh -p 12345 root@10.2.3.4 密码@@"),
    "chinese, in the midst": token(lambda m: m.word(), "VPN密码@@已重置"),
    "chinese, on the next line": token(lambda m: m.alnum(40), "我的 API 密钥如下：\n@@\n"),
    "chinese, in letters": token(lambda m: m.word(), "yonghu: root mima: @@"),
    "korean": token(lambda m: m.word(), "비밀번호는 @@ 입니다"),
    "on a line below": token(lambda m: m.word(), "The password is:\n\n    @@\n"),
    "asked for": token(lambda m: m.hex(40), "wandb: Paste an API key from your profile and hit enter:\n@@"),
    "folded": token(lambda m: m.word(), "password: >-\n  @@"),
    "two lines of a tunnel": token(lambda m: m.word(), "auth-user-pass\nalice\n@@"),
    "abbreviated": token(lambda m: m.word(), "my pw is @@"),
    "abbreviated, a network's": token(lambda m: m.word(), 'psk="@@"'),
    "named behind it": token(lambda m: m.word(), "use @@ as the password"),
    "code of an app": token(lambda m: m.of(string.digits, 6), "OTP code: @@"),
    "code of a card": token(lambda m: m.of(string.digits, 6), "PIN: @@"),
    "code, chinese": token(lambda m: m.of(string.digits, 6), "动态码 @@ 已过期"),
    "column of Markdown": token(
        lambda m: m.word(), "| host | user | password |\n| --- | --- | --- |\n| n1 | root | @@ |"
    ),
    "column, chinese": token(lambda m: m.word(), "| 主机 | 密码 |\n|---|---|\n| n1 | @@ |"),
    "column of commas": token(lambda m: m.word(), "host,user,passwd\nn1,root,@@\nn2,root,x"),
    "column of quoted values": token(lambda m: m.word(), '"name","password","host"\n"alice","@@","n1"'),
    "column of tabs": token(lambda m: m.hex(32), "name\ttoken\nprod\t@@"),
    "column of a database": token(lambda m: m.word(), " user | password \n------+----------\n bob  | @@ \n(1 row)"),
    "column of a terminal": token(lambda m: m.word(), "HOST     USER    PASSWORD\nnode1    root    @@"),
    "variable of Terraform": token(
        lambda m: m.word(), 'variable "db_password" {\n  type = string\n  default = "@@"\n}'
    ),
    "expect, in braces": token(lambda m: m.word(), 'expect "password:" { send "@@\\r" }'),
    "expect, in Python": token(lambda m: m.word(), "child.expect('assword:')\nchild.sendline('@@')"),
    "call with four arguments": token(lambda m: m.alnum(12), "client.connect('10.0.0.2', 22, 'root', '@@')"),
    "drive of a network": token(lambda m: m.word(), "net use Z: \\\\nas\\ds @@ /user:alice"),
    "new user": token(lambda m: m.word(), "useradd -p @@ alice"),
    "name and value of a tool": token(lambda m: m.word(), "pulumi config set --secret dbPassword @@"),
    "node with its user": token(lambda m: m.word(), "node1:root:@@:22"),
    "user and password, apart": token(lambda m: m.word(), "login: alice / @@"),
    "ntfy": token(lambda m: "tk_" + m.of(string.ascii_lowercase, 28) + "2", "ntfy publish -u :@@ oom hi"),
    "zhipu, alone": token(lambda m: m.hex(32) + "." + m.alnum(16), "@@ 余额不足"),
    "zhipu, in a name": token(lambda m: m.hex(32) + "." + m.alnum(16), "run-@@.yaml"),
    "digest's answer": token(lambda m: m.hex(32), 'Authorization: Digest username="a", response="@@"'),
    "drawn at random": token(lambda m: "aB3" + m.alnum(29) + "9xY7", "INFO using @@ from now on"),
}
AROUND = (
    "LINE",
    "2025-03-02 10:11:12,123 INFO [rank0] LINE",
    "+ LINE",
    "[1,2]<stdout>: LINE",
    "```\nLINE\n```",
    "| LINE |",
)


def planted(each: int = 3, seed: int = 11) -> Iterator[tuple[str, str, str]]:
    """Kind, text and secret, ``each`` times for every kind, in different surroundings."""
    for number, (kind, make) in enumerate(KINDS.items()):
        for turn in range(each):
            line, secret = make(Maker(seed + 1000 * number + turn))
            around = AROUND[turn % len(AROUND)] if "\n" not in line else "LINE"
            yield kind, around.replace("LINE", line), secret
