from bitorch_engine.layers.qconv.nbit.cutlass.layer import Q4Conv2dCutlass, Q4Conv2dCutlassForward, Q8Conv2d

__all__ = ["Q4Conv2dCutlass", "Q4Conv2dCutlassForward", "Q8Conv2d"]
