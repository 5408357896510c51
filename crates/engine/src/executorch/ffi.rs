//! The only module of this engine with `unsafe`: opens ExecuTorch's libraries and calls `shim.cpp`.
//!
//! Invariant: whatever safe code does with [`Library`] and [`LoadedMethod`], calls of the shim meet its
//! preconditions. Indices exist. Values have the kind and rank of their slot, and as many bytes as
//! their shape requires. Threads are not replaced while a method is loaded. A hostile program may
//! still exploit ExecuTorch inside a call, so programs run in a separate process.
#![expect(
    unsafe_code,
    reason = "ExecuTorch is a C++ library; the compiler cannot check calls of it"
)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::failure::RuntimeFailure;
use super::value::{self, MAX_RANK, Order, Sizes, TensorView, Value, ValueSlot, ValueType};
use crate::library::NativeBackend;

/// `PkgtoolEtValue` of the shim.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawValue {
    kind: i32,
    dtype: i32,
    rank: u32,
    sizes: [i32; MAX_RANK],
    order: Order,
    data: *const c_void,
    bytes: u64,
    integer: i64,
    number: f64,
}

const _: () = assert!(size_of::<RawValue>() == 128, "as the shim has it");

/// `PkgtoolEtMethod` of the shim.
#[repr(C)]
struct RawMethod {
    _private: [u8; 0],
}

/// The shim's functions; `shim.cpp` documents each.
#[derive(Debug)]
struct ShimFunctions {
    start: unsafe extern "C" fn(),
    text: unsafe extern "C" fn() -> *const c_char,
    set_threads: unsafe extern "C" fn(u32) -> u32,
    backend: unsafe extern "C" fn(usize, *mut bool) -> *const c_char,
    has_kernel: unsafe extern "C" fn(*const c_char) -> bool,
    open: unsafe extern "C" fn(*const c_char, u64, u64, *mut u32) -> *mut RawMethod,
    add_data: unsafe extern "C" fn(*mut RawMethod, *const c_char, bool) -> u32,
    load: unsafe extern "C" fn(*mut RawMethod, *const c_char) -> u32,
    close: unsafe extern "C" fn(*mut RawMethod),
    slot: unsafe extern "C" fn(*const RawMethod, bool, usize, *mut RawValue) -> bool,
    set: unsafe extern "C" fn(*mut RawMethod, usize, *const RawValue) -> u32,
    run: unsafe extern "C" fn(*mut RawMethod) -> u32,
    step: unsafe extern "C" fn(*mut RawMethod) -> u32,
    get: unsafe extern "C" fn(*const RawMethod, usize, *mut RawValue) -> u32,
}

/// ExecuTorch, loaded until the process ends.
#[derive(Debug)]
pub(super) struct Library {
    functions: ShimFunctions,
    threads: Mutex<Threads>,
}

/// The thread pool that all methods of this process share.
#[derive(Debug, Default)]
struct Threads {
    /// The number of threads that the library starts by default; `None` before the first query.
    default_count: Option<u32>,
    /// The current number of threads.
    count: u32,
    /// The number of loaded methods.
    methods: usize,
}

/// The source of a method.
#[derive(Debug)]
pub(super) struct MethodSource {
    /// The file.
    pub(super) path: PathBuf,
    /// The offset and length of the program in the file.
    pub(super) place: (u64, u64),
    /// Files with tensors of the program; the `bool` marks the preferred one.
    pub(super) data: Vec<(PathBuf, bool)>,
    /// The method's name.
    pub(super) method: String,
    /// Number of threads; `None` uses the library's default.
    pub(super) threads: Option<u32>,
}

/// A loaded method.
#[derive(Debug)]
pub(super) struct LoadedMethod {
    library: &'static Library,
    raw: NonNull<RawMethod>,
    /// Its inputs.
    pub(super) inputs: Vec<ValueSlot>,
    /// Its outputs.
    pub(super) outputs: Vec<ValueSlot>,
}

// SAFETY: the shim keeps nothing of a method in thread-local storage, and a method is used by one
// thread at a time: every use of it needs the value itself or a reference that cannot be shared,
// because `Method` is not `Sync`.
unsafe impl Send for LoadedMethod {}

/// Opens a library of ExecuTorch with symbols visible to other libraries. It is never closed, so
/// its registrations stay valid.
pub(super) fn open_global(path: &Path) -> Result<(), String> {
    // SAFETY: opening runs the library's own initialisation. The file is a library of ExecuTorch by
    // its place and name, of the version this was built for; that it does what it should is trusted,
    // as with any library that a user installs.
    let opened = unsafe { Opened::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    opened
        .map(std::mem::forget)
        .map_err(|error| open_error(&error))
}

/// Returns the system's reason why a library cannot be opened, without the path.
fn open_error(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Library {
    /// Opens the shim. ExecuTorch's libraries must be open already.
    pub(super) fn open(shim: &Path) -> Result<Self, String> {
        // SAFETY: the file was just written by this process, from what its build made of `shim.cpp`;
        // opening it runs nothing but the C++ library's own initialisation.
        let opened = unsafe { Opened::open(Some(shim), RTLD_NOW | RTLD_LOCAL) };
        let opened = opened.map_err(|error| open_error(&error))?;
        // SAFETY: the types are those that `shim.cpp` declares, which is what was opened.
        let functions =
            unsafe { ShimFunctions::of(&opened) }.map_err(|error| open_error(&error))?;
        std::mem::forget(opened);
        // SAFETY: it is called once, first, and takes nothing.
        unsafe { (functions.start)() };
        Ok(Self {
            functions,
            threads: Mutex::default(),
        })
    }

    /// Lists the registered backends.
    pub(super) fn backends(&self) -> Vec<NativeBackend> {
        let mut all = Vec::new();
        loop {
            let mut available = false;
            // SAFETY: any index may be asked for, and the flag can be written to.
            let name = unsafe { (self.functions.backend)(all.len(), &raw mut available) };
            if name.is_null() {
                return all;
            }
            // SAFETY: a name that is not null ends with a zero and lives as long as its backend's
            // library, which is never closed.
            let name = unsafe { CStr::from_ptr(name) };
            all.push(NativeBackend {
                name: name.to_string_lossy().into_owned(),
                available,
            });
        }
    }

    /// Returns `true` if a kernel is registered for an operator, such as `aten::add.out`.
    pub(super) fn has_kernel(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else {
            return false;
        };
        // SAFETY: the name ends with a zero and outlives the call.
        unsafe { (self.functions.has_kernel)(name.as_ptr()) }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a method that is about to be loaded, with its number of threads. Methods keep a
    /// pointer to the thread pool, so the pool is only replaced while no method is loaded.
    fn register_method(&self, wanted: Option<u32>) -> Result<(), RuntimeFailure> {
        let mut threads = self.threads();
        if threads.methods == 0 {
            // SAFETY: no method is loaded, and none can be while the lock is held.
            let set = |count| unsafe { (self.functions.set_threads)(count) };
            let by_itself = *threads.default_count.get_or_insert_with(|| set(0));
            threads.count = set(wanted.unwrap_or(by_itself));
        } else if wanted.is_some_and(|wanted| wanted != threads.count) {
            let count = threads.count;
            let text = format!("this process already runs another program on {count} threads");
            return Err(RuntimeFailure::before_call(&text));
        }
        if threads.count == 0 {
            return Err(RuntimeFailure::before_call("cannot start threads"));
        }
        threads.methods += 1;
        Ok(())
    }

    fn unregister_method(&self) {
        self.threads().methods -= 1;
    }

    /// Converts the return code of a call to a result.
    fn outcome(&self, code: u32) -> Result<(), RuntimeFailure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it gives a text that ends with a zero and stays until the next call on this
        // thread; it is copied before.
        let text = unsafe { CStr::from_ptr((self.functions.text)()) };
        Err(RuntimeFailure {
            code,
            text: text.to_string_lossy().into_owned(),
        })
    }
}

impl ShimFunctions {
    /// Looks up the functions of an opened shim.
    ///
    /// # Safety
    ///
    /// `library` is the shim and is never closed.
    unsafe fn of(library: &Opened) -> Result<Self, libloading::Error> {
        // SAFETY: the caller guarantees that the library is the shim, so each function has the type
        // of its field.
        unsafe {
            Ok(Self {
                start: *library.get(b"pkgtool_et_start")?,
                text: *library.get(b"pkgtool_et_text")?,
                set_threads: *library.get(b"pkgtool_et_set_threads")?,
                backend: *library.get(b"pkgtool_et_backend")?,
                has_kernel: *library.get(b"pkgtool_et_has_kernel")?,
                open: *library.get(b"pkgtool_et_open")?,
                add_data: *library.get(b"pkgtool_et_add_data")?,
                load: *library.get(b"pkgtool_et_load")?,
                close: *library.get(b"pkgtool_et_close")?,
                slot: *library.get(b"pkgtool_et_slot")?,
                set: *library.get(b"pkgtool_et_set")?,
                run: *library.get(b"pkgtool_et_run")?,
                step: *library.get(b"pkgtool_et_step")?,
                get: *library.get(b"pkgtool_et_get")?,
            })
        }
    }
}

impl LoadedMethod {
    /// Loads a method.
    pub(super) fn load(
        library: &'static Library,
        source: &MethodSource,
    ) -> Result<Self, RuntimeFailure> {
        let path = c_text(source.path.as_os_str().as_bytes())?;
        let name = c_text(source.method.as_bytes())?;
        let data: Vec<(CString, bool)> = source
            .data
            .iter()
            .map(|(path, preferred)| Ok((c_text(path.as_os_str().as_bytes())?, *preferred)))
            .collect::<Result<_, RuntimeFailure>>()?;
        library.register_method(source.threads)?;
        let mut code = 0;
        let (offset, length) = source.place;
        // SAFETY: the path ends with a zero, the code can be written to, both outlive the call; any
        // place may be asked for.
        let raw = unsafe { (library.functions.open)(path.as_ptr(), offset, length, &raw mut code) };
        let Some(raw) = NonNull::new(raw) else {
            library.unregister_method();
            return Err(RuntimeFailure::before_call("out of memory"));
        };
        // From here on, dropping `method` closes it.
        let mut method = Self {
            library,
            raw,
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        library.outcome(code)?;
        for (path, preferred) in &data {
            // SAFETY: the method is open and not loaded; the path ends with a zero.
            let code =
                unsafe { (library.functions.add_data)(raw.as_ptr(), path.as_ptr(), *preferred) };
            library.outcome(code)?;
        }
        // SAFETY: the method is open and not loaded; the name ends with a zero.
        let code = unsafe { (library.functions.load)(raw.as_ptr(), name.as_ptr()) };
        library.outcome(code)?;
        method.inputs = method.slots(false);
        method.outputs = method.slots(true);
        Ok(method)
    }

    fn slots(&self, output: bool) -> Vec<ValueSlot> {
        let mut all = Vec::new();
        loop {
            let mut value = RawValue::empty();
            // SAFETY: the method is loaded, any index may be asked for, the value can be written to.
            let there = unsafe {
                (self.library.functions.slot)(self.raw.as_ptr(), output, all.len(), &raw mut value)
            };
            if !there {
                return all;
            }
            let rank = value.rank();
            all.push(ValueSlot {
                kind: ValueType::of(value.kind),
                order: value.order[..rank].to_vec(),
            });
        }
    }

    /// Sets an input to a value of its kind. A tensor must have the slot's rank and order, and as
    /// many bytes as its shape requires. ExecuTorch checks the rest.
    pub(super) fn set(&mut self, index: usize, value: &Value<'_>) -> Result<(), RuntimeFailure> {
        let mut raw = RawValue::empty();
        let slot = self.inputs.get(index);
        match (slot.map(|slot| slot.kind), value) {
            (Some(ValueType::None), Value::None) => raw.kind = KIND_NONE,
            (Some(ValueType::Int), Value::Int(value)) => {
                raw.kind = KIND_INT;
                raw.integer = *value;
            }
            (Some(ValueType::Double), Value::Double(value)) => {
                raw.kind = KIND_DOUBLE;
                raw.number = *value;
            }
            (Some(ValueType::Bool), Value::Bool(value)) => {
                raw.kind = KIND_BOOL;
                raw.integer = i64::from(*value);
            }
            (Some(ValueType::Tensor), Value::Tensor(view)) => {
                let rank = slot.map_or(0, |slot| slot.order.len());
                let found = view.sizes.as_slice().len();
                if found != rank {
                    let text =
                        format!("input {index} has the wrong rank: expected {rank}, got {found}");
                    return Err(RuntimeFailure::before_call(&text));
                }
                let expected = view.sizes.bytes(view.dtype);
                if expected != Some(view.bytes.len()) {
                    return Err(RuntimeFailure::before_call(
                        "the size of an input in bytes differs from that of its shape",
                    ));
                }
                raw = RawValue::of(view);
            }
            _ => {
                let text = format!("input {index} has the wrong kind of value");
                return Err(RuntimeFailure::before_call(&text));
            }
        }
        // SAFETY: the method is loaded and has this input; the value has its kind and, if it is a
        // tensor, its rank and as many bytes as shape and dtype say, in memory that outlives the
        // call, in which they are copied.
        let code =
            unsafe { (self.library.functions.set)(self.raw.as_ptr(), index, &raw const raw) };
        self.library.outcome(code)
    }

    /// Runs the method. All inputs must be set.
    pub(super) fn run(&mut self) -> Result<(), RuntimeFailure> {
        // SAFETY: the method is loaded. An input that was never set is an error of ExecuTorch's; one
        // that was set is in memory of the method's.
        let code = unsafe { (self.library.functions.run)(self.raw.as_ptr()) };
        self.library.outcome(code)
    }

    /// Like [`LoadedMethod::run`], and returns the time of each instruction. After an error the method is
    /// unusable.
    pub(super) fn run_in_steps(&mut self) -> Result<Vec<Duration>, RuntimeFailure> {
        let mut times = Vec::new();
        loop {
            let start = Instant::now();
            // SAFETY: as for a run.
            let code = unsafe { (self.library.functions.step)(self.raw.as_ptr()) };
            if code == END_OF_METHOD {
                return Ok(times);
            }
            self.library.outcome(code)?;
            times.push(start.elapsed());
        }
    }

    /// Returns an output of the last run. The elements of a tensor are valid until the next run.
    pub(super) fn get(&self, index: usize) -> Result<Value<'_>, RuntimeFailure> {
        if index >= self.outputs.len() {
            return Err(RuntimeFailure::before_call("output index out of range"));
        }
        let mut raw = RawValue::empty();
        // SAFETY: the method is loaded and has this output; the value can be written to.
        let code = unsafe { (self.library.functions.get)(self.raw.as_ptr(), index, &raw mut raw) };
        self.library.outcome(code)?;
        Ok(match ValueType::of(raw.kind) {
            ValueType::None => Value::None,
            ValueType::Int => Value::Int(raw.integer),
            ValueType::Double => Value::Double(raw.number),
            ValueType::Bool => Value::Bool(raw.integer != 0),
            // SAFETY: the shim gave the value, of this method. `&self` is borrowed for as long as the
            // view lives, so nothing can run meanwhile.
            ValueType::Tensor => unsafe { raw.view() }.map_or(Value::Other, Value::Tensor),
            ValueType::Other => Value::Other,
        })
    }
}

impl Drop for LoadedMethod {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nobody can use it any more.
        unsafe { (self.library.functions.close)(self.raw.as_ptr()) };
        self.library.unregister_method();
    }
}

/// The code for the end of a method that runs in steps.
const END_OF_METHOD: u32 = 0x03;

/// The shim's constants for the kinds of values.
const KIND_NONE: i32 = 0;
const KIND_TENSOR: i32 = 1;
const KIND_INT: i32 = 2;
const KIND_DOUBLE: i32 = 3;
const KIND_BOOL: i32 = 4;

impl ValueType {
    fn of(raw: i32) -> Self {
        match raw {
            KIND_NONE => Self::None,
            KIND_TENSOR => Self::Tensor,
            KIND_INT => Self::Int,
            KIND_DOUBLE => Self::Double,
            KIND_BOOL => Self::Bool,
            _ => Self::Other,
        }
    }
}

impl RawValue {
    fn empty() -> Self {
        Self {
            kind: KIND_NONE,
            dtype: 0,
            rank: 0,
            sizes: [0; MAX_RANK],
            order: [0; MAX_RANK],
            data: std::ptr::null(),
            bytes: 0,
            integer: 0,
            number: 0.0,
        }
    }

    fn of(view: &TensorView<'_>) -> Self {
        Self {
            kind: KIND_TENSOR,
            dtype: value::code_of(view.dtype),
            rank: u32::try_from(view.sizes.as_slice().len()).unwrap_or(0),
            sizes: view.sizes.padded(),
            order: view.order,
            data: view.bytes.as_ptr().cast(),
            bytes: view.bytes.len() as u64,
            ..Self::empty()
        }
    }

    /// Returns the tensor in a value from the shim; `None` if its dtype is unsupported.
    ///
    /// # Safety
    ///
    /// The shim returned this value as an output of a method, and the method does not run again
    /// during `'a`.
    unsafe fn view<'a>(&self) -> Option<TensorView<'a>> {
        let dtype = value::dtype_of(self.dtype)?;
        let sizes = Sizes::of(self.rank(), self.sizes);
        let bytes = sizes.bytes(dtype)?;
        if self.bytes != bytes as u64 {
            return None;
        }
        let bytes: &[u8] = if bytes == 0 {
            &[]
        } else {
            // SAFETY: the shim gives the address of a tensor and how many bytes it has; the address
            // is not null then. They stay as they are until the method runs again.
            unsafe { std::slice::from_raw_parts(self.data.cast(), bytes) }
        };
        Some(TensorView {
            dtype,
            sizes,
            order: self.order,
            bytes,
        })
    }

    fn rank(&self) -> usize {
        usize::try_from(self.rank).map_or(0, |rank| rank.min(MAX_RANK))
    }
}

fn c_text(bytes: &[u8]) -> Result<CString, RuntimeFailure> {
    CString::new(bytes).map_err(|_| RuntimeFailure::before_call("a name contains a zero byte"))
}
