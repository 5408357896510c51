//! `run_sizes MODEL LIBRARY THREADS SIZE,..`: loads a model, runs it four times at each size of its open
//! dimensions after the first one, and prints the times in milliseconds. Without a library (`-`) the embedded
//! engine runs the model.

#![expect(clippy::print_stdout, reason = "a benchmark reads the result")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_engine::{LoadOptions, LoadRequest, engine};
use pkgtool_model::{Dim, open};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs at each size; the first one may make a plan.
const RUNS: usize = 4;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, library, threads, sizes] = arguments.as_slice() else {
        return Err("MODEL LIBRARY THREADS SIZE,..".into());
    };
    let path = PathBuf::from(model);
    let (info, _) = open(&path)?;
    let signature = Signature::of(&info.methods[0], None)?;
    let name = if library == "-" { "tract" } else { "ort" };
    let request = LoadRequest {
        model: path,
        signature: signature.clone(),
        options: LoadOptions {
            threads: Some(threads.parse()?),
            library: (library != "-").then(|| PathBuf::from(library)),
            ..LoadOptions::default()
        },
    };
    let start = Instant::now();
    let mut session = engine(name)
        .ok_or("the engine is not built")?
        .load(&request)?;
    println!("{}", serde_json::json!({ "load": milliseconds(start) }));
    for size in sizes.split(',') {
        let size: u64 = size.parse()?;
        let inputs = signature.inputs.iter().map(|spec| input(spec, size));
        let inputs: Vec<Tensor> = inputs.collect::<Outcome<_>>()?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            session.run(&inputs)?;
            times.push(milliseconds(start));
        }
        println!("{}", serde_json::json!({ "size": size, "times": times }));
    }
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Tokens of small numbers, ones as a mask, and numbers below 1.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn input(spec: &TensorSpec, size: u64) -> Outcome<Tensor> {
    let dims = spec.dims.clone().ok_or("an input without a rank")?;
    let dims = dims.iter().enumerate().map(|(at, dim)| match dim {
        Dim::Fixed(fixed) => *fixed,
        _ if at == 0 => 1,
        _ => size,
    });
    let shape: Vec<u64> = dims.collect();
    let value = |at: u64| match spec.dtype {
        _ if spec.name.contains("mask") => 1.0,
        _ if spec.name.contains("type") => 0.0,
        DType::Int64 | DType::Int32 => ((at * 7 + 3) % 1000) as f64,
        _ => (at % 17) as f64 / 17.0,
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
    Ok(Tensor::from_f64(spec.dtype, shape, values)?)
}
