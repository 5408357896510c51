//! The system calls that a confined process cannot make.
//!
//! The lists contain calls that reach outside of the process: programs, sockets, other processes,
//! rights and owners of files, and parts of the system that no computation needs. All other calls
//! are allowed, and [`super::linux`] restricts files.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Denied calls that exist on every architecture of Linux.
const DENIED: &[i64] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Networks, and other processes through sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // Memory and files of other processes.
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_tkill,
    // Objects shared by processes of one user.
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Rights, owners and times of files, which rules for files do not cover.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_linkat,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    libc::SYS_symlinkat,
    libc::SYS_utimensat,
    // Rights of the process.
    libc::SYS_capset,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setns,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    libc::SYS_unshare,
    // Parts of the system with a history of vulnerabilities, and calls for administrators.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Denied calls that exist only on x86-64: older forms of the calls above.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_mknod,
    libc::SYS_modify_ldt,
    libc::SYS_symlink,
    libc::SYS_uselib,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];

#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[];

/// Number of `fchmodat2`, which the C library's list lacks. It is the same on all architectures.
const FCHMODAT2: i64 = 452;

/// `TIOCSTI`, which types into a terminal, and `TIOCLINUX`, which pastes.
const TERMINAL_INPUT_IOCTLS: [u64; 2] = [0x5412, 0x541C];

/// The first number of the x32 system calls, which duplicate those of x86-64.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Denies these calls to this process and all its threads.
pub(super) fn restrict() -> Result<(), String> {
    let failed = |error: String| format!("it can make every system call ({error})");
    let denied = denied().and_then(|rules| program(rules, libc::EPERM));
    apply(&denied.map_err(failed)?).map_err(failed)?;
    // The flags of `clone3` are in memory, where a filter cannot read them. With `ENOSYS` the C
    // library uses the older call.
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(&program(absent, libc::ENOSYS).map_err(failed)?).map_err(failed)
}

fn apply(program: &BpfProgram) -> Result<(), String> {
    seccompiler::apply_filter_all_threads(program).map_err(|error| error.to_string())
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(rules: SyscallRules, error: i32) -> Result<BpfProgram, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH);
    let architecture = architecture.map_err(|error| error.to_string())?;
    let denied = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture);
    let filter = filter.map_err(|error| error.to_string())?;
    let program = BpfProgram::try_from(filter).map_err(|error| error.to_string())?;
    Ok(without_x32(program))
}

/// Denies the x32 numbers of all calls.
#[cfg(target_arch = "x86_64")]
fn without_x32(program: BpfProgram) -> BpfProgram {
    // Load the number; if it is below the first x32 number, skip the next instruction; else return
    // an error.
    let number = seccompiler::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let is_x32 = seccompiler::sock_filter {
        code: 0x35,
        jt: 0,
        jf: 1,
        k: X32,
    };
    let deny = seccompiler::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0x0005_0000 | libc::ENOSYS.unsigned_abs(),
    };
    [number, is_x32, deny].into_iter().chain(program).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn without_x32(program: BpfProgram) -> BpfProgram {
    program
}

fn denied() -> Result<SyscallRules, String> {
    let all = DENIED.iter().chain(DENIED_HERE);
    let mut rules: SyscallRules = all.map(|number| (*number, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let is_other = |argument| is(argument, SeccompCmpOp::Ne, own);
    let is_not_zero = |argument| is(argument, SeccompCmpOp::Ne, 0);
    // Signals to other processes, including groups.
    for call in [
        libc::SYS_kill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
    ] {
        rules.insert(call, vec![rule(vec![is_other(0)?])?]);
    }
    // Limits and scheduling of other processes.
    let limits = vec![is_other(0)?, is_not_zero(0)?];
    rules.insert(libc::SYS_prlimit64, vec![rule(limits)?]);
    for (call, argument) in [
        (libc::SYS_setpriority, 1),
        (libc::SYS_ioprio_set, 1),
        (libc::SYS_sched_setattr, 0),
        (libc::SYS_sched_setparam, 0),
        (libc::SYS_sched_setscheduler, 0),
    ] {
        rules.insert(call, vec![rule(vec![is_not_zero(argument)?])?]);
    }
    // New processes, but not threads.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let no_thread = is(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    rules.insert(libc::SYS_clone, vec![rule(vec![no_thread])?]);
    let typing = TERMINAL_INPUT_IOCTLS.map(|request| rule(vec![is(1, SeccompCmpOp::Eq, request)?]));
    let typing: Result<Vec<_>, String> = typing.into_iter().collect();
    rules.insert(libc::SYS_ioctl, typing?);
    Ok(rules)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

fn is(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
        .map_err(|error| error.to_string())
}
