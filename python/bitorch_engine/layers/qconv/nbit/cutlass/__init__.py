from bitorch_engine.layers.qconv.nbit.cutlass.layer import Q4Conv2dCutlass, Q4Conv2dCutlassForward

__all__ = ["Q4Conv2dCutlass", "Q4Conv2dCutlassForward"]
