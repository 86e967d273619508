"""The server's command: `python -m bie.green_bit_llm.serve.api.v1.fastapi_server`."""
