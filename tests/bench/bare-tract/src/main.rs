//! Loads an ONNX model with tract, runs it on ones for so many seconds, prints the times.
//!
//! `bare-tract MODEL THREADS SECONDS NAME=4x128 …`: every input with its concrete shape, float32 or
//! (with `NAME=i64:4x128`) int64. Output: one line of JSON.

use std::time::{Duration, Instant};

use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

fn main() -> TractResult<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, threads, seconds, inputs @ ..] = &arguments[..] else {
        usage();
    };
    let threads: usize = threads.parse()?;
    if threads > 1 {
        set_default_executor(Executor::multithread(threads));
    }
    let seconds = Duration::from_secs_f64(seconds.parse()?);
    let start = Instant::now();
    let mut model = tract_onnx::onnx().model_for_path(model)?;
    let mut tensors = tvec![];
    for (place, input) in inputs.iter().enumerate() {
        let (name, shape) = input.split_once('=').expect("NAME=SHAPE");
        let (dtype, shape) = match shape.strip_prefix("i64:") {
            Some(shape) => (i64::datum_type(), shape),
            None => (f32::datum_type(), shape),
        };
        let shape: Vec<usize> = shape
            .split('x')
            .map(|size| size.parse().expect("a size"))
            .collect();
        assert_eq!(model.node(model.input_outlets()?[place].node).name, name);
        model = model.with_input_fact(place, InferenceFact::dt_shape(dtype, shape.clone()))?;
        let mut ones = Tensor::zero_dt(dtype, &shape)?;
        if dtype == f32::datum_type() {
            for element in ones.as_bytes_mut().chunks_exact_mut(4) {
                element.copy_from_slice(&1_f32.to_le_bytes());
            }
        } else {
            for element in ones.as_bytes_mut().chunks_exact_mut(8) {
                element.copy_from_slice(&1_i64.to_le_bytes());
            }
        }
        tensors.push(ones.into_tvalue());
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let load = start.elapsed();
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < seconds || times.len() < 3 {
        let start = Instant::now();
        let outputs = plan.run(tensors.clone())?;
        times.push(start.elapsed().as_nanos());
        drop(outputs);
    }
    println!(
        "{{\"load_ms\": {}, \"times_ns\": {times:?}}}",
        load.as_secs_f64() * 1e3
    );
    Ok(())
}

fn usage() -> ! {
    eprintln!("bare-tract MODEL THREADS SECONDS NAME=SHAPE …");
    std::process::exit(2)
}
