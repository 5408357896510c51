//! The one place with `unsafe`: ExecuTorch's libraries are opened here, and `shim.cpp` is called.
//!
//! Invariant: whatever safe code does with [`Library`] and [`Method`], the shim is called as it wants
//! to be called: indices exist, values have the kind and rank of their place and as many bytes as
//! their shape says, threads are not replaced under a method. What a hostile program makes ExecuTorch
//! do inside a call is beyond that; it is why programs run in a process of their own.
#![expect(
    unsafe_code,
    reason = "ExecuTorch is a C++ library: what is called cannot be checked by this compiler"
)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::failure::Failure;
use super::value::{self, Kind, MAX_RANK, Order, Sizes, Slot, Value, View};
use crate::engine::library::NativeBackend;

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

/// The shim's functions; what each does stands there.
#[derive(Debug)]
struct Functions {
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

/// ExecuTorch, loaded for as long as the process lives.
#[derive(Debug)]
pub(super) struct Library {
    functions: Functions,
    threads: Mutex<Threads>,
}

/// The threads that all methods of this process share.
#[derive(Debug, Default)]
struct Threads {
    /// How many the library started by itself; `None` before it was asked.
    by_itself: Option<u32>,
    /// How many there are.
    count: u32,
    /// How many methods are loaded.
    methods: usize,
}

/// What to load.
#[derive(Debug)]
pub(super) struct Source {
    /// The file.
    pub(super) path: PathBuf,
    /// Where the program is in it: offset and length.
    pub(super) place: (u64, u64),
    /// Files with tensors of the program, and which of them is preferred.
    pub(super) data: Vec<(PathBuf, bool)>,
    /// The method's name.
    pub(super) method: String,
    /// Threads; `None` leaves it to the library.
    pub(super) threads: Option<u32>,
}

/// A loaded method.
#[derive(Debug)]
pub(super) struct Method {
    library: &'static Library,
    raw: NonNull<RawMethod>,
    /// Its inputs.
    pub(super) inputs: Vec<Slot>,
    /// Its outputs.
    pub(super) outputs: Vec<Slot>,
}

// SAFETY: the shim keeps nothing of a method in thread-local storage, and a method is used by one
// thread at a time: every use of it needs the value itself or a reference that cannot be shared,
// because `Method` is not `Sync`.
unsafe impl Send for Method {}

/// Opens a library of ExecuTorch for those that need its symbols. It is never closed: what it
/// registered stays.
pub(super) fn open_for_all(path: &Path) -> Result<(), String> {
    // SAFETY: opening runs the library's own initialisation. The file is a library of ExecuTorch by
    // its place and name, of the version this was built for; that it does what it should is trusted,
    // as with any library that a user installs.
    let opened = unsafe { Opened::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    opened.map(std::mem::forget).map_err(|error| cause(&error))
}

/// What the system says of a library that cannot be opened, without what it was told to open.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Library {
    /// Opens the shim; ExecuTorch's libraries are open already.
    pub(super) fn open(shim: &Path) -> Result<Self, String> {
        // SAFETY: the file was just written by this process, from what its build made of `shim.cpp`;
        // opening it runs nothing but the C++ library's own initialisation.
        let opened = unsafe { Opened::open(Some(shim), RTLD_NOW | RTLD_LOCAL) };
        let opened = opened.map_err(|error| cause(&error))?;
        // SAFETY: the types are those that `shim.cpp` declares, which is what was opened.
        let functions = unsafe { Functions::of(&opened) }.map_err(|error| cause(&error))?;
        std::mem::forget(opened);
        // SAFETY: it is called once, first, and takes nothing.
        unsafe { (functions.start)() };
        Ok(Self {
            functions,
            threads: Mutex::default(),
        })
    }

    /// Registered backends.
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

    /// Whether there is code for an operator, such as `aten::add.out`.
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

    /// Counts a method that is going to be loaded, with its number of threads. Methods keep a pointer
    /// to the threads, so these are only replaced while there are none.
    fn enter(&self, wanted: Option<u32>) -> Result<(), Failure> {
        let mut threads = self.threads();
        if threads.methods == 0 {
            // SAFETY: no method is loaded, and none can be while the lock is held.
            let set = |count| unsafe { (self.functions.set_threads)(count) };
            let by_itself = *threads.by_itself.get_or_insert_with(|| set(0));
            threads.count = set(wanted.unwrap_or(by_itself));
        } else if wanted.is_some_and(|wanted| wanted != threads.count) {
            let count = threads.count;
            let text = format!("this process runs another program, on {count} threads");
            return Err(Failure::of_ours(&text));
        }
        if threads.count == 0 {
            return Err(Failure::of_ours("it can start no threads"));
        }
        threads.methods += 1;
        Ok(())
    }

    fn leave(&self) {
        self.threads().methods -= 1;
    }

    /// The outcome of a call.
    fn outcome(&self, code: u32) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it gives a text that ends with a zero and stays until the next call on this
        // thread; it is copied before.
        let text = unsafe { CStr::from_ptr((self.functions.text)()) };
        Err(Failure {
            code,
            text: text.to_string_lossy().into_owned(),
        })
    }
}

impl Functions {
    /// The functions of an opened shim.
    ///
    /// # Safety
    ///
    /// The library is the shim, which is never closed.
    unsafe fn of(library: &Opened) -> Result<Self, libloading::Error> {
        // SAFETY: the caller says that the library is the shim: each of its functions has the type
        // of the field that it is put into.
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

impl Method {
    /// Loads a method.
    pub(super) fn load(library: &'static Library, source: &Source) -> Result<Self, Failure> {
        let path = c_text(source.path.as_os_str().as_bytes())?;
        let name = c_text(source.method.as_bytes())?;
        let data: Vec<(CString, bool)> = source
            .data
            .iter()
            .map(|(path, preferred)| Ok((c_text(path.as_os_str().as_bytes())?, *preferred)))
            .collect::<Result<_, Failure>>()?;
        library.enter(source.threads)?;
        let mut code = 0;
        let (offset, length) = source.place;
        // SAFETY: the path ends with a zero, the code can be written to, both outlive the call; any
        // place may be asked for.
        let raw = unsafe { (library.functions.open)(path.as_ptr(), offset, length, &raw mut code) };
        let Some(raw) = NonNull::new(raw) else {
            library.leave();
            return Err(Failure::of_ours("there is no memory for it"));
        };
        // From here on its end closes it.
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

    fn slots(&self, output: bool) -> Vec<Slot> {
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
            all.push(Slot {
                kind: Kind::of(value.kind),
                order: value.order[..rank].to_vec(),
            });
        }
    }

    /// Sets an input to a value of its kind; a tensor has its rank, order, and as many bytes as its
    /// shape says. ExecuTorch checks the rest.
    pub(super) fn set(&mut self, index: usize, value: &Value<'_>) -> Result<(), Failure> {
        let mut raw = RawValue::empty();
        let slot = self.inputs.get(index);
        match (slot.map(|slot| slot.kind), value) {
            (Some(Kind::None), Value::None) => raw.kind = NONE,
            (Some(Kind::Int), Value::Int(value)) => {
                raw.kind = INT;
                raw.integer = *value;
            }
            (Some(Kind::Double), Value::Double(value)) => {
                raw.kind = DOUBLE;
                raw.number = *value;
            }
            (Some(Kind::Bool), Value::Bool(value)) => {
                raw.kind = BOOL;
                raw.integer = i64::from(*value);
            }
            (Some(Kind::Tensor), Value::Tensor(view)) => {
                let rank = slot.map_or(0, |slot| slot.order.len());
                let found = view.sizes.as_slice().len();
                if found != rank {
                    let text = format!("input {index} has {rank} dimensions, not {found}");
                    return Err(Failure::of_ours(&text));
                }
                let expected = view.sizes.bytes(view.dtype);
                if expected != Some(view.bytes.len()) {
                    return Err(Failure::of_ours(
                        "an input has more or fewer bytes than its shape",
                    ));
                }
                raw = RawValue::of(view);
            }
            _ => {
                let text = format!("input {index} is not of the kind that the program takes");
                return Err(Failure::of_ours(&text));
            }
        }
        // SAFETY: the method is loaded and has this input; the value has its kind and, if it is a
        // tensor, its rank and as many bytes as shape and dtype say, in memory that outlives the
        // call, in which they are copied.
        let code =
            unsafe { (self.library.functions.set)(self.raw.as_ptr(), index, &raw const raw) };
        self.library.outcome(code)
    }

    /// Runs it. Every input was set before.
    pub(super) fn run(&mut self) -> Result<(), Failure> {
        // SAFETY: the method is loaded. An input that was never set is an error of ExecuTorch's; one
        // that was set is in memory of the method's.
        let code = unsafe { (self.library.functions.run)(self.raw.as_ptr()) };
        self.library.outcome(code)
    }

    /// Runs it like [`Method::run`] and gives the time of each instruction. After an error it cannot
    /// be run any more.
    pub(super) fn run_in_steps(&mut self) -> Result<Vec<Duration>, Failure> {
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

    /// An output of the last run. Elements of a tensor stay where they are until the next.
    pub(super) fn get(&self, index: usize) -> Result<Value<'_>, Failure> {
        if index >= self.outputs.len() {
            return Err(Failure::of_ours("there is no such output"));
        }
        let mut raw = RawValue::empty();
        // SAFETY: the method is loaded and has this output; the value can be written to.
        let code = unsafe { (self.library.functions.get)(self.raw.as_ptr(), index, &raw mut raw) };
        self.library.outcome(code)?;
        Ok(match Kind::of(raw.kind) {
            Kind::None => Value::None,
            Kind::Int => Value::Int(raw.integer),
            Kind::Double => Value::Double(raw.number),
            Kind::Bool => Value::Bool(raw.integer != 0),
            // SAFETY: the shim gave the value, of this method. `&self` is borrowed for as long as the
            // view lives, so nothing can run meanwhile.
            Kind::Tensor => unsafe { raw.view() }.map_or(Value::Other, Value::Tensor),
            Kind::Other => Value::Other,
        })
    }
}

impl Drop for Method {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nobody can use it any more.
        unsafe { (self.library.functions.close)(self.raw.as_ptr()) };
        self.library.leave();
    }
}

/// The code for the end of a method that is run in steps.
const END_OF_METHOD: u32 = 0x03;

/// Kinds as the shim has them.
const NONE: i32 = 0;
const TENSOR: i32 = 1;
const INT: i32 = 2;
const DOUBLE: i32 = 3;
const BOOL: i32 = 4;

impl Kind {
    fn of(raw: i32) -> Self {
        match raw {
            NONE => Self::None,
            TENSOR => Self::Tensor,
            INT => Self::Int,
            DOUBLE => Self::Double,
            BOOL => Self::Bool,
            _ => Self::Other,
        }
    }
}

impl RawValue {
    fn empty() -> Self {
        Self {
            kind: NONE,
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

    fn of(view: &View<'_>) -> Self {
        Self {
            kind: TENSOR,
            dtype: value::code_of(view.dtype),
            rank: u32::try_from(view.sizes.as_slice().len()).unwrap_or(0),
            sizes: view.sizes.padded(),
            order: view.order,
            data: view.bytes.as_ptr().cast(),
            bytes: view.bytes.len() as u64,
            ..Self::empty()
        }
    }

    /// The tensor that the shim told of, if its elements exist here.
    ///
    /// # Safety
    ///
    /// The shim gave this value as an output of a method, which does not run again while `'a` lasts.
    unsafe fn view<'a>(&self) -> Option<View<'a>> {
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
        Some(View {
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

fn c_text(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure::of_ours("a name has a zero byte in it"))
}
