"""What BITorch Engine's API has and the layers here do not need: its functions, byte orders and small helpers.

The modules of ``bitorch_engine`` give them BITorch Engine's paths.
"""
