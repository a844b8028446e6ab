"""What is known: the memory model, the catalogues, the case records and the retrieval index.

Never imports ``oomdoc``; knows no web, no terminal and no network.
"""

import os

# ONNX Runtime looks up a host and writes a device id as it is imported, before any call could turn that off. Whoever
# wants it sets the variable to 0.
for _switch in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_switch, "1")
