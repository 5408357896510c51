//! The system calls that a confined process cannot make.
//!
//! The lists name what reaches out of the process: programs, sockets, other processes, rights and owners of files, and
//! parts of the system that no computation needs. Everything else is left to [`super::linux`]'s rules for files.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// What every processor's Linux has.
const DENIED: &[i64] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Networks, and other processes by sockets.
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
    // What processes of one user share.
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
    // Parts of the system with a history of faults, and what is for administrators.
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

/// What only x86-64 has: older forms of the calls above.
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

/// `fchmodat2`, which is younger than the list of the C library. The number is the same everywhere.
const FCHMODAT2: i64 = 452;

/// `TIOCSTI`, which types into a terminal, and `TIOCLINUX`, which pastes.
const TYPING: [u64; 2] = [0x5412, 0x541C];

/// The first number of the system calls of x32, which are those of x86-64 once more.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Keeps this process, and all of its threads, from these calls.
pub(super) fn restrict() -> Result<(), String> {
    let failed = |error: String| format!("it can make every system call ({error})");
    let denied = denied().and_then(|rules| program(rules, libc::EPERM));
    apply(&denied.map_err(failed)?).map_err(failed)?;
    // Its flags lie in memory, where no filter sees them: the C library then takes the older call.
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(&program(absent, libc::ENOSYS).map_err(failed)?).map_err(failed)
}

fn apply(program: &BpfProgram) -> Result<(), String> {
    seccompiler::apply_filter_all_threads(program).map_err(|error| error.to_string())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(rules: Rules, error: i32) -> Result<BpfProgram, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH);
    let architecture = architecture.map_err(|error| error.to_string())?;
    let denied = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture);
    let filter = filter.map_err(|error| error.to_string())?;
    let program = BpfProgram::try_from(filter).map_err(|error| error.to_string())?;
    Ok(without_x32(program))
}

/// Denies the second numbers that calls have.
#[cfg(target_arch = "x86_64")]
fn without_x32(program: BpfProgram) -> BpfProgram {
    // Load the number; unless it is at or above the first, skip the next; answer with an error.
    let number = sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let is_x32 = sock_filter {
        code: 0x35,
        jt: 0,
        jf: 1,
        k: X32,
    };
    let deny = sock_filter {
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

fn denied() -> Result<Rules, String> {
    let all = DENIED.iter().chain(DENIED_HERE);
    let mut rules: Rules = all.map(|number| (*number, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let is_other = |argument| is(argument, SeccompCmpOp::Ne, own);
    let is_not_zero = |argument| is(argument, SeccompCmpOp::Ne, 0);
    // Signals to others, whole groups among them.
    for call in [
        libc::SYS_kill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
    ] {
        rules.insert(call, vec![rule(vec![is_other(0)?])?]);
    }
    // Limits and turns of others.
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
    // Processes, but not threads.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let no_thread = is(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    rules.insert(libc::SYS_clone, vec![rule(vec![no_thread])?]);
    let typing = TYPING.map(|request| rule(vec![is(1, SeccompCmpOp::Eq, request)?]));
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
