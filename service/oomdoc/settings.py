"""The service's settings: environment variables ``OOMDOC_*``, then a file (``OOMDOC_CONFIG``), then defaults.

Used by what serves (HTTP, bots); the library and the plain commands need none of it.
"""

from __future__ import annotations

import os
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from oomkb.errors import InputError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Settings(BaseSettings):
    """All settings of ``oomdoc serve``."""

    model_config = SettingsConfigDict(env_prefix="OOMDOC_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=64, description="Server processes.")
    database_url: str = Field("", description="SQLAlchemy URL; default: an SQLite file in the state folder.")
    auth: Literal["auto", "required", "off"] = Field(
        "auto", description="API keys: required off loopback (auto), always (required), or never (off)."
    )
    api_keys: SecretStr = Field(
        SecretStr(""), description="Keys as key:scope+scope, separated by commas; scopes: read, write, admin."
    )
    max_body_bytes: int = Field(25 << 20, ge=1 << 10, description="Largest JSON or text body.")
    max_upload_bytes: int = Field(2 << 30, ge=1 << 10, description="Largest uploaded file (streamed to disk).")
    body_timeout_s: float = Field(20.0, gt=0, description="A body must arrive within this time.")
    rate_per_minute: int = Field(6000, ge=1, description="Requests per minute and key or address.")
    max_concurrent: int = Field(64, ge=1, description="Requests worked on at once; more are shed with 503.")
    max_concurrent_each: int = Field(
        48, ge=1, description="Requests worked on at once for one key or address; more are shed with 429."
    )
    max_diagnosing: int = Field(
        16, ge=1, description="Diagnoses worked out or waiting for it per process; more are shed with 503."
    )
    max_held_bytes: int = Field(
        160 << 20, ge=1 << 20, description="Bodies held in memory at once; more are shed with 503, half for one caller."
    )
    min_upload_bytes_per_s: int = Field(32 << 10, ge=1, description="An upload must arrive at least this fast.")
    diagnosing_processes: int = Field(
        -1,
        ge=-1,
        le=64,
        description="Processes per server process that compute; -1: one per processor, 0: threads of the server.",
    )
    diagnosing_threads: int = Field(1, ge=1, le=64, description="Threads that compute, where no processes do.")
    diagnose_timeout_s: float = Field(20.0, gt=0, description="What computes for longer is ended.")
    max_unpacked_bytes: int = Field(
        512 << 20, ge=1 << 10, description="Most that an uploaded .gz or .zst may unpack to."
    )
    trusted_proxies: str = Field(
        "", description="Addresses or networks whose X-Forwarded-For is believed, separated by commas; empty: none."
    )
    allowed_hosts: str = Field(
        "",
        description="Host names this server answers to where no key is needed, beside addresses and names without a "
        "dot; separated by commas, * for any.",
    )
    header_timeout_s: float = Field(10.0, gt=0, description="A request's head must arrive within this time.")
    cors_origins: str = Field("", description="Origins allowed to call from a browser, separated by commas.")
    retention_days: int = Field(30, ge=1, description="How long diagnoses and chats are kept.")
    retention_bytes: int = Field(
        2 << 30, ge=1 << 20, description="How much of diagnoses is kept at most; those not asked for longest go first."
    )
    cache_entries: int = Field(4096, ge=0, description="Answers kept in memory for repeated reports.")
    case_refresh_s: float = Field(2.0, gt=0, description="How often a replica looks for cases added elsewhere.")
    drain_s: float = Field(20.0, ge=0, description="How long running requests may finish at shutdown.")
    drain_notice_s: float = Field(
        1.0, ge=0, description="How long /readyz says draining before new connections are refused."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Of the structured log.")
    llm_url: str = Field("", description="OpenAI-compatible endpoint that reads reports and converses; empty: none.")
    llm_key: SecretStr = Field(SecretStr(""), description="Its key.")
    llm_model: str = Field("", description="Its model name.")
    llm_timeout: float = Field(
        30.0, gt=0, le=600, description="Seconds that one call of it may take; then the answer is given without it."
    )
    llm_style: Literal["full", "small"] = Field(
        "full", description="full: one call a report; small: one question a call, for models of about 8B parameters."
    )
    llm_context: int = Field(
        8192, ge=4096, le=1 << 20, description="Tokens that a prompt and its reply may take; longer logs are condensed."
    )
    slack_signing_secret: SecretStr = Field(SecretStr(""), description="Slack: signing secret.")
    slack_bot_token: SecretStr = Field(SecretStr(""), description="Slack: bot token.")
    feishu_app_id: str = Field("", description="Feishu/Lark: app id.")
    feishu_app_secret: SecretStr = Field(SecretStr(""), description="Feishu/Lark: app secret.")
    feishu_encrypt_key: SecretStr = Field(SecretStr(""), description="Feishu/Lark: encrypt key.")
    feishu_verification_token: SecretStr = Field(SecretStr(""), description="Feishu/Lark: verification token.")
    dingtalk_app_key: str = Field("", description="DingTalk: app key (client id).")
    dingtalk_app_secret: SecretStr = Field(SecretStr(""), description="DingTalk: app secret.")
    wecom_corp_id: str = Field("", description="WeCom: corp id.")
    wecom_agent_id: str = Field("", description="WeCom: agent id.")
    wecom_secret: SecretStr = Field(SecretStr(""), description="WeCom: app secret.")
    wecom_token: SecretStr = Field(SecretStr(""), description="WeCom: callback token.")
    wecom_aes_key: SecretStr = Field(SecretStr(""), description="WeCom: EncodingAESKey.")

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, value: str) -> str:
        for part in filter(None, (p.strip() for p in value.split(","))):
            ip_network(part, strict=False)
        return value

    @field_validator("api_keys")
    @classmethod
    def _keys_are_whole(cls, value: SecretStr) -> SecretStr:
        for entry in filter(None, value.get_secret_value().split(",")):
            key, _, scopes = entry.strip().partition(":")
            if len(key) < 16 or not set(scopes.split("+")) <= {"read", "write", "admin"}:
                raise ValueError(
                    "write key:scope+scope with keys of at least 16 characters; scopes: read, write, admin"
                )
        return value

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def keys_required(self) -> bool:
        """Whether a request needs a key."""
        return self.auth == "required" or (self.auth == "auto" and not self.loopback)

    def keys(self) -> dict[str, frozenset[str]]:
        """Key -> scopes."""
        found: dict[str, frozenset[str]] = {}
        for entry in filter(None, self.api_keys.get_secret_value().split(",")):
            key, _, scopes = entry.strip().partition(":")
            found[key] = frozenset(scopes.split("+")) if scopes else frozenset({"read"})
        return found

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments before environment before file."""
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        path = os.environ.get("OOMDOC_CONFIG")
        return (*sources, TomlConfigSettingsSource(settings_cls, Path(path))) if path else sources


def load_settings(**overrides: Any) -> Settings:
    """Read and check the settings.

    :raises InputError: naming every setting that is wrong and what it takes.
    """
    path = os.environ.get("OOMDOC_CONFIG")
    if path and not Path(path).is_file():
        raise InputError("no such file", where=f"OOMDOC_CONFIG={path}", hint="name a TOML file")
    try:
        return Settings(**{k: v for k, v in overrides.items() if v is not None})
    except ValidationError as error:
        wrong = "; ".join(f"OOMDOC_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        raise InputError(wrong, where="settings", hint="oomdoc settings lists them all") from error
    except ValueError as error:
        raise InputError(str(error), where=f"OOMDOC_CONFIG={path}", hint="mend the TOML file") from error


@cache
def _descriptions() -> dict[str, str]:
    return {name: info.description or "" for name, info in Settings.model_fields.items()}


def masked(settings: Settings) -> dict[str, tuple[str, str]]:
    """Name -> (value with secrets masked, description), for ``oomdoc settings``."""
    shown: dict[str, tuple[str, str]] = {}
    for name, description in _descriptions().items():
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = "********" if value.get_secret_value() else ""
        if name == "database_url":
            value = _without_password(str(value))
        shown[f"OOMDOC_{name.upper()}"] = (str(value), description)
    return shown


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    user, colon, _ = head.rpartition(":")
    return f"{user}:********@{tail}" if at and colon and "//" in user else url
