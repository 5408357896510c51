//! Tests of the parts that need no worker process.

mod tensor;
