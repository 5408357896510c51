//! The only `unsafe` of the kernels: reading and writing registers, and the step into code that is compiled
//! for instructions which the processor was found to have.
