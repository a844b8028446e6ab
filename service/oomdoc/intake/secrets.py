"""What credentials look like: tokens by their form, and values by the name or the command that they stand beside.

Every row is the kind of placeholder, words (in lower case) of which a line must hold one to be looked at, and a pattern
whose group ``v`` is the secret. Forms are those that the issuers document; ``tests/service/intake/test_secrets.py``
plants each and looks for it again, with the patterns of detect-secrets as a second opinion.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SECRETS", "Row"]

Row = tuple[str, tuple[str, ...], re.Pattern[str]]
_START: Final = r"(?<![A-Za-z0-9_])"
_B64: Final = r"[A-Za-z0-9+/_\-]"

# Tokens that say themselves what they are: (what they begin with, what follows).
_FORMS: Final[tuple[tuple[str, str], ...]] = (
    ("hf_", r"[A-Za-z0-9]{16,64}"),
    ("api_org_", r"[A-Za-z0-9]{20,64}"),
    ("sk-", r"(?:ant-|proj-|or-|lf-|svcacct-|admin-)?[A-Za-z0-9_\-]{16,200}"),
    ("csk-", r"[A-Za-z0-9]{20,80}"),
    ("xai-", r"[A-Za-z0-9]{20,120}"),
    ("gsk_", r"[A-Za-z0-9]{20,80}"),
    ("pplx-", r"[A-Za-z0-9]{20,80}"),
    ("r8_", r"[A-Za-z0-9]{20,60}"),
    ("tgp_v1_", r"[A-Za-z0-9_\-]{20,80}"),
    ("fw_", r"[A-Za-z0-9]{20,60}"),
    ("rpa_", r"[A-Z0-9]{20,80}"),
    ("jina_", r"[A-Za-z0-9_\-]{20,100}"),
    ("nvapi-", r"[A-Za-z0-9_\-]{20,100}"),
    ("lsv2_", r"(?:pt|sk)_[0-9a-f]{16,64}_[0-9a-f]{6,20}"),
    ("pcsk_", r"[A-Za-z0-9_]{20,100}"),
    ("wandb_v1_", r"[A-Za-z0-9_]{20,200}"),
    ("local-", r"[0-9a-f]{40}"),
    ("ms-", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("gh", r"[pousr]_[A-Za-z0-9]{20,255}"),
    ("github_pat_", r"[A-Za-z0-9_]{20,255}"),
    ("gl", r"(?:pat|dt|rt|ptt|soat|cbt|ft|agent|rtr|imt)-[A-Za-z0-9_\-.]{16,80}"),
    ("atbb", r"[A-Za-z0-9]{24,60}"),
    ("atatt3", r"[A-Za-z0-9_\-=]{40,300}"),
    ("atctt3", r"[A-Za-z0-9_\-=]{40,300}"),
    ("akia", r"[0-9A-Z]{16}"),
    ("asia", r"[0-9A-Z]{16}"),
    ("aiza", r"[A-Za-z0-9_\-]{30,45}"),
    ("ya29.", r"[A-Za-z0-9_\-]{20,300}"),
    ("gocspx-", r"[A-Za-z0-9_\-]{20,60}"),
    ("ltai", r"[A-Za-z0-9]{12,30}"),
    ("akid", r"[A-Za-z0-9]{13,40}"),
    ("aklt", r"[A-Za-z0-9]{20,80}"),
    ("bce-v3/altak-", r"[A-Za-z0-9]{8,40}/[0-9a-f]{20,64}"),
    ("sk_", r"(?:live|test)_[A-Za-z0-9]{16,120}"),
    ("rk_", r"(?:live|test)_[A-Za-z0-9]{16,120}"),
    ("whsec_", r"[A-Za-z0-9+/=]{20,80}"),
    ("sg.", r"[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{30,60}"),
    ("key-", r"[0-9a-f]{32}(?![0-9a-f])"),
    ("sq0", r"(?:atp|csp|idp)-[A-Za-z0-9_\-]{20,60}"),
    ("shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("xox", r"[abeprs]-[A-Za-z0-9\-.]{10,250}"),
    ("xapp-", r"[A-Za-z0-9\-]{10,200}"),
    ("npm_", r"[A-Za-z0-9]{30,60}"),
    ("pypi-", r"[A-Za-z0-9_\-]{30,250}"),
    ("rubygems_", r"[0-9a-f]{40,64}"),
    ("dckr_", r"(?:pat|oat)_[A-Za-z0-9_\-]{20,60}"),
    ("do", r"[opr]_v1_[0-9a-f]{40,80}"),
    ("dapi", r"[0-9a-f]{32}(?:-\d)?"),
    ("dop_v1_", r"[0-9a-f]{40,80}"),
    ("dp.", r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._\-]{30,80}"),
    ("hv", r"[sbr]\.[A-Za-z0-9_\-]{20,200}"),
    ("pul-", r"[0-9a-f]{40}"),
    ("age-secret-key-1", r"[A-Z0-9]{50,70}"),
    ("pmak-", r"[0-9a-f]{20,30}-[0-9a-f]{30,40}"),
    ("figd_", r"[A-Za-z0-9_\-]{20,80}"),
    ("lin_api_", r"[A-Za-z0-9]{30,60}"),
    ("ntn_", r"[A-Za-z0-9]{30,60}"),
    ("secret_", r"[A-Za-z0-9]{40,50}"),
    ("sntry", r"[su]_[A-Za-z0-9+/=_]{30,300}"),
    ("glc_", r"[A-Za-z0-9+/=]{30,300}"),
    ("glsa_", r"[A-Za-z0-9]{20,60}_[0-9a-f]{8}"),
    ("nrak-", r"[A-Z0-9]{20,40}"),
    ("hrku-", r"[A-Za-z0-9_\-]{30,80}"),
    ("tskey-", r"[a-z]{2,10}-[A-Za-z0-9\-]{16,80}"),
    ("pscale_", r"(?:tkn|pw|oauth)_[A-Za-z0-9_\-.]{20,80}"),
    ("sbp_", r"[0-9a-f]{40}"),
    ("pn", r"[ub]_[A-Za-z0-9]{30,60}"),
    ("dt0c01.", r"[A-Z0-9]{20,30}\.[A-Z0-9]{50,80}"),
    ("fm", r"[12][a-z]?_[A-Za-z0-9+/=_]{40,400}"),
    ("nfp_", r"[A-Za-z0-9]{30,60}"),
    ("eyj", r"[A-Za-z0-9_\-]{8,2000}\.[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{4,1000}"),
    ("eyjhcgl", r"[A-Za-z0-9+/=_\-]{40,2000}"),
)
_UPPER: Final = frozenset({"akia", "asia", "atbb", "nrak-", "age-secret-key-1", "gocspx-", "ltai", "pmak-", "hrku-"})
_MIXED: Final = {
    "aiza": "AIza",
    "akid": "AKID",
    "aklt": "AKLT",
    "atatt3": "ATATT3",
    "atctt3": "ATCTT3",
    "bce-v3/altak-": "bce-v3/ALTAK-",
    "eyj": "eyJ",
    "eyjhcgl": "eyJhcGl",
    "gocspx-": "GOCSPX-",
    "ltai": "LTAI",
    "sg.": "SG.",
}


def _written(start: str) -> str:
    return re.escape(_MIXED.get(start) or (start.upper() if start in _UPPER else start))


_TOKENS: Final = re.compile(f"{_START}(?P<v>{'|'.join(_written(s) + rest for s, rest in _FORMS)})(?![A-Za-z0-9])")

# Names that values are secret under. A tokenizer's tokens and counts of tokens are none.
_PASS: Final = r"(?:[a-z0-9]{0,20})pass(?:word|wd|phrase|code)s?|(?<=_)pass|(?<=-)pass|pwd|secrets?|credentials?"
_KEYS: Final = (
    r"api[_\-]?key|apikey|app[_\-]?key|access[_\-]?key(?:[_\-]?id)?|account[_\-]?key|storage[_\-]?key"
    r"|shared[_\-]?access[_\-]?key|sharedaccesskey|subscription[_\-]?key|signing[_\-]?key|encryption[_\-]?key"
    r"|master[_\-]?key|private[_\-]?key(?:[_\-]?id)?|secret[_\-]?(?:access[_\-]?)?key|ssh[_\-]?key|license[_\-]?key"
    r"|wandb[_\-]?key|auth[_\-]?key|session[_\-]?(?:key|id)|sas[_\-]?token|client[_\-]?secret|app[_\-]?secret"
    r"|signing[_\-]?secret|webhook[_\-]?secret|connection[_\-]?string|encoding[_\-]?aes[_\-]?key|_authToken|_auth"
)
_TOKEN: Final = (
    r"(?<!pad_)(?<!eos_)(?<!bos_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)(?<!image_)(?<!video_)(?<!audio_)(?<!special_)"
    r"(?<!pad-)(?<!eos-)(?<!bos-)(?<!unk-)(?<!per_)(?<!per-)(?<!start_)(?<!end_)(?<!stop_)(?<!think_)(?<!add_)token"
)
_NOTHING: Final = (
    r"(?!(?:None|null|true|false|xxx+|your|\$|<|\*|os\.|\[|\{|\(|auto|max|num|pad|eos|bos|unk|not|is|are|was|for|the"
    r"|and|or|required|missing|invalid|incorrect|expired|error|failed|authentication|wrong|must|should|str|int|bool"
    r"|Optional|environ|getenv|args|self|config|settings)\b|\*{3}|\.{3})"
)
_CLOSE: Final = r"[\"'\]]{0,2}"
_ASSIGN: Final = r"\s{0,3}(?:=>|:=|[=:])\s{0,3}"
_VALUE: Final = r"[^\s\"',;<>$(){}\\]"

SECRETS: Final[tuple[Row, ...]] = (
    (
        "private-key",
        ("private key",),
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?P<v>(?:[A-Za-z0-9+/=\s:,.\-]|\\[nr\\])(?:(?!-----END)(?:[A-Za-z0-9+/=\s:,.()\-]|\\[nr\\])){0,20000})"
        ),
    ),
    ("token", tuple(sorted({start for start, _ in _FORMS})), _TOKENS),
    (
        "token",  # of forms that begin with nothing of their own
        (".atlasv1.", "-us", ":aa", "flyv1"),
        re.compile(
            rf"{_START}(?P<v>[A-Za-z0-9]{{14}}\.atlasv1\.[A-Za-z0-9_\-=]{{50,90}}|[0-9a-f]{{32}}-us\d{{1,2}}(?!\w)"
            r"|\d{8,10}:AA[A-Za-z0-9_\-]{32,34})"
        ),
    ),
    (
        "token",
        ("twilio", "token", "secret", "sid"),
        re.compile(rf"{_START}(?P<v>(?:SK|AC)[0-9a-f]{{32}})(?![0-9A-Za-z])"),
    ),
    (
        "token",
        ("discord", "token", "bot"),
        re.compile(rf"{_START}(?P<v>[MNO][A-Za-z0-9_\-]{{22,27}}\.[GXYZ][A-Za-z0-9_\-]{{5}}\.[A-Za-z0-9_\-]{{27,40}})"),
    ),
    (
        "token",
        ("zhipu", "glm", "bigmodel", "api"),
        re.compile(rf"{_START}(?P<v>[0-9a-f]{{32}}\.[A-Za-z0-9]{{16}})(?![A-Za-z0-9.])"),
    ),
    (
        "webhook",
        ("hooks.slack", "webhook", "open-apis/bot", "robot/send"),
        re.compile(
            r"https?://(?P<v>hooks\.slack\.com/[\w/\-]{5,200}|(?:discord|discordapp)\.com/api/webhoo"
            r"ks/[\w/\-]{5,200}|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/[\w/\-]{5,200}"
            r"|oapi\.dingtalk\.com/robot/send\?[\w=&\-]{5,300}|qyapi\.weixin\.qq\.com/cgi-bin/webhoo"
            r"k/[\w?=&/\-]{5,300}|\w{1,60}\.webhook\.office\.com/[\w@/\-]{5,300})"
        ),
    ),
    (
        "authorization",
        ("authorization", "bearer", "-key:", "_key:", "auth-token:", "private-token:", "api-token:"),
        re.compile(
            r"(?:(?:Proxy-)?Authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)\s{1,3}"
            r"|\bBearer\s{1,3}|\b(?:X-)?(?:API|Auth|Private|Access|Gitlab|Vault|Goog-Api|Ocp-Apim-Subscription|Functions)"
            r"-(?:Key|Token)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?P<v>[A-Za-z0-9._~+/\-]{8,4000}=?=?)",
            re.IGNORECASE,
        ),
    ),
    (
        "cookie",
        ("cookie",),
        re.compile(
            r"\b(?:Set-)?Cookie[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<v>[^\s=;,\"']{1,80}=[^\r\n\"']{4,4000})", re.IGNORECASE
        ),
    ),
    (
        "secret",  # signatures and keys in the query of an address
        ("sig", "x-amz", "x-goog", "key", "token", "passw", "secret", "code=", "credential"),
        re.compile(
            r"[?&;](?:sig|signature|se|skoid|x-(?:amz|goog|oss|tos|cos)-[a-z\-]{3,30}|awsaccesskeyid|ossaccesskeyid|q-signature"
            r"|q-ak|(?:[a-z]{0,20}[_\-])?(?:token|key|secret|password|passwd|pwd|code|credential)|apikey|api_key)"
            r"=(?P<v>[^&\s\"'<>]{6,4000})",
            re.IGNORECASE,
        ),
    ),
    (
        "secret",  # words that name a password: whatever stands there
        ("pass", "pwd", "secret", "credential"),
        re.compile(
            rf"(?:(?<![A-Za-z])|_)(?:[A-Za-z0-9]{{0,20}}[_\-])?(?:{_PASS}){_CLOSE}(?:{_ASSIGN}|\s?：\s?)[\"']?"
            rf"(?P<v>{_NOTHING}{_VALUE}{{4,200}})",
            re.IGNORECASE,
        ),
    ),
    (
        "secret",  # names of keys and tokens: values that are no counts and no names
        ("key", "token", "secret", "session", "connection", "_auth"),
        re.compile(
            rf"(?:(?<![A-Za-z])|_)(?:{_KEYS}|(?:auth|access|refresh|bearer|bot|hub|api|private|deploy|id|hf|csrf|user|jwt)?[_\-]?"
            rf"{_TOKEN}){_CLOSE}(?:{_ASSIGN}|\s{{1,2}}(?={_B64}{{20}}))[\"']?"
            rf"(?P<v>{_NOTHING}(?=[^\s\"',;<>]{{0,60}}[A-Za-z]|\d{{9}})[^\s\"',;<>$(){{}}\\]{{6,400}})",
            re.IGNORECASE,
        ),
    ),
    (
        "secret",  # variables of the environment that end like a secret
        ("key=", "key:", "key =", "token=", "token =", "pat=", 'key"', "key'"),
        re.compile(
            rf"(?<![A-Za-z0-9_])[A-Z][A-Z0-9]{{1,30}}(?:_[A-Z0-9]{{1,30}}){{0,5}}_(?:KEY|TOKEN|PAT|AUTH){_CLOSE}{_ASSIGN}[\"']?"
            rf"(?P<v>{_NOTHING}(?=[^\s\"',;<>]{{0,60}}[A-Za-z])[^\s\"',;<>$(){{}}\\]{{8,400}})"
        ),
    ),
    (
        "secret",  # flags: --db-password X, --token X
        ("--",),
        re.compile(
            rf"(?<![A-Za-z0-9_\-])--?(?:[a-z0-9]{{1,20}}[_\-]){{0,4}}(?:{_PASS}|{_KEYS}|{_TOKEN})"
            rf"(?:\s{{1,3}}|=)[\"']?(?P<v>{_NOTHING}(?!-)[^\s\"'<>$]{{4,400}})",
            re.IGNORECASE,
        ),
    ),
    (
        "secret",  # commands that take one without a name
        ("login", "mysql", "mariadb", "sshpass", "curl", "redis", "wget", "docker", "unzip", "7z", "openssl"),
        re.compile(
            r"\b(?:wandb(?:\.login|\s+login(?:\s+--?\w[\w\-]*)*)|(?:huggingface-cli|hf|modelscope|swanlab|comet|clearml)\s+(?:auth\s+)?login(?:\s+--?\w[\w\-]*)*"
            r"|(?:\w{1,20}\.)?login)[\s(]{1,3}(?:[\w\-]{1,20}\s?=\s?)?[\"']?(?P<v>(?=[^\s\"')]{0,60}\d)[A-Za-z0-9_\-.]{16,200})(?![\w.])"
            r"|\b(?:mysql|mariadb|mysqldump|mysqladmin)\b[^\n]{0,200}?\s-p(?P<v2>[^\s\"'\-][^\s\"']{3,100})"
            r"|\bsshpass\s+-p\s{0,2}[\"']?(?P<v3>[^\s\"']{3,100})"
            r"|\bcurl\b[^\n]{0,300}?\s(?:-u|--user)\s{0,2}[\"']?[^\s\"':]{1,60}:(?P<v4>[^\s\"']{3,100})"
            r"|\bredis-cli\b[^\n]{0,200}?\s-a\s{0,2}[\"']?(?P<v5>[^\s\"']{3,100})"
            r"|\bdocker\s+login\b[^\n]{0,200}?\s-p\s{0,2}[\"']?(?P<v6>[^\s\"']{3,100})"
            r"|\b(?:unzip|7z[a]?)\b[^\n]{0,100}?\s-[pP]\s{0,2}[\"']?(?P<v7>[^\s\"'\-][^\s\"']{3,100})"
            r"|\bopenssl\b[^\n]{0,200}?\bpass:(?P<v8>[^\s\"']{3,100})"
        ),
    ),
    (
        "secret",  # Kaggle's file
        ('"username"',),
        re.compile(r'"username"\s?:[^{}]{1,80}?"key"\s?:\s?"(?P<v>[0-9a-f]{32})"'),
    ),
    (
        "secret",
        ("密码", "口令", "密钥", "令牌", "秘钥", "授权码", "パスワード", "비밀번호"),
        re.compile(
            r"(?:密码|口令|密钥|秘钥|令牌|授权码|パスワード|비밀번호)[\"']?\s{0,3}(?:[:：=]|是|为|は|\s)\s{0,3}[\"'“「]?"
            r"(?P<v>(?=[^\s]{0,40}[A-Za-z0-9])[\x21-\x26\x28-\x3b\x3d\x3f-\x7e]{4,200})"
        ),
    ),
    (
        "secret",  # in words: "the password is hunter2"
        ("passw", "passphrase"),
        re.compile(
            r"\b(?:password|passwd|passphrase)\s+(?:is|was)\s+[\"'`]?(?P<v>(?=\S{0,40}\d)[^\s\"'`,]{4,100})",
            re.IGNORECASE,
        ),
    ),
    (
        "url-login",
        ("://",),
        re.compile(
            r"[a-z][a-z0-9+.\-]{1,20}://(?P<v>[^\s/:@<>\"']{0,80}:(?!\d{1,5}/)[^\s@<>\"']{1,200})@(?=[\w\[<])",
            re.IGNORECASE,
        ),
    ),
)
