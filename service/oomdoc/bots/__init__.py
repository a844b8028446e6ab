"""The messengers' doors."""
