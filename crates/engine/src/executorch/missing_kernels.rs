//! Explains why operators have no kernel in the libraries that can be opened here.
//!
//! ExecuTorch's Python package contains kernels for language models in a library that only a Python
//! with PyTorch can open. That library is linked with PyTorch and with the package's own Python
//! module, which needs symbols of the interpreter. Opening it here would also register kernels a
//! second time, and the runtime aborts the process then.

use super::search;

/// Path of that library in the package.
const PYTORCH_LIBRARY: &str = "extension/llm/custom_ops/libcustom_ops_aot_lib.so";
/// The kernels that it registers.
const PYTORCH_KERNELS: [&str; 10] = [
    "llama::channelwise_gated_delta_rule.out",
    "llama::custom_quantized_sdpa.out",
    "llama::custom_sdpa.out",
    "llama::fallback.out",
    "llama::fast_hadamard_transform.out",
    "llama::gated_delta_rule.out",
    "llama::quantized_moe_ffn.out",
    "llama::sdpa_with_kv_cache.out",
    "llama::update_cache.out",
    "llama::update_cache_with_indices.out",
];

/// Returns the reason why these operators cannot run.
pub(super) fn reason(missing: &[String]) -> String {
    let (there, nowhere): (Vec<&str>, Vec<&str>) = missing
        .iter()
        .map(String::as_str)
        .partition(|name| PYTORCH_KERNELS.contains(name));
    let package = search::installations().into_iter();
    let mut usable = package.filter(|found| found.problem.is_none());
    let is_there = usable.next().is_some_and(|found| {
        let package = found.path.parent();
        package.is_some_and(|package| package.join(PYTORCH_LIBRARY).is_file())
    });
    if there.is_empty() || !is_there {
        return "ExecuTorch's Python package has no kernel for this".to_owned();
    }
    let which = if nowhere.is_empty() {
        String::new()
    } else {
        format!(" for {}", quoted(&there))
    };
    let rest = if nowhere.is_empty() {
        String::new()
    } else {
        format!("; no library has a kernel for {}", quoted(&nowhere))
    };
    format!(
        "ExecuTorch's Python package has the kernels{which} in {PYTORCH_LIBRARY} only, which needs PyTorch's \
         libraries (libtorch, libtorch_cpu, libc10, libtorch_python) and a Python interpreter to be \
         opened{rest}; `--engine tract` runs custom_sdpa, sdpa_with_kv_cache, update_cache and \
         fast_hadamard_transform"
    )
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
