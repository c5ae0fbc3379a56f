//! The binary: arguments → configuration → log → command → exit code.
//!
//! Failures are one line on standard error. Exit codes: 0 done, or drained after SIGTERM or SIGINT; 64 a
//! wrong flag, file or key; 69 an address or a server cannot be used; 70 the program broke; 74 the store
//! cannot be opened.

use std::io::Write;
use std::process::ExitCode;

use shardcache::cli::{self, Command, CtlCommand, Invocation, ReplicateArgs, ServeArgs};
use shardcache::config::{Effective, LogConfig};
use shardcache::failure::Failure;
use shardcache::{app, ctl, replicate, telemetry};

/// Faster than the system's allocator on many small, long-lived objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The allocator would ask for huge pages, and the half-used ends of many buffers would be resident: an
    // idle watcher would cost 32 KiB instead of 19, and lists would not be faster. Where the kernel does not
    // know the setting, nothing is lost.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed; the exit code still says what happened.
            let _ = writeln!(std::io::stderr(), "shardcache: {}", failure.line());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run() -> Result<(), Failure> {
    match cli::parse(std::env::args_os())? {
        Invocation::Print(text) => {
            let _ = write!(std::io::stdout(), "{text}");
            Ok(())
        }
        Invocation::Run(cli) => match cli.command {
            Command::Serve(arguments) => serve(*arguments),
            Command::Replicate(arguments) => push(&arguments),
            Command::Ctl(command) => match *command {
                CtlCommand::Backup(arguments) => ctl::backup(&arguments),
                CtlCommand::Push(arguments) => ctl::push(&arguments),
                CtlCommand::Freshness(arguments) => ctl::freshness(&arguments),
                CtlCommand::Release(arguments) => ctl::release(&arguments),
                CtlCommand::Shards(arguments) => ctl::shards(&arguments),
            },
        },
    }
}

fn push(arguments: &ReplicateArgs) -> Result<(), Failure> {
    let log = LogConfig { format: arguments.log_format, filter: arguments.log_level.clone() };
    telemetry::start_log(&log)?;
    replicate::run(arguments)
}

fn serve(arguments: ServeArgs) -> Result<(), Failure> {
    let print_config = arguments.print_config;
    let effective = Effective::load(arguments)?;
    if print_config {
        let _ = write!(std::io::stdout(), "{}", effective.to_yaml()?);
        return Ok(());
    }
    telemetry::start_log(&effective.log)?;
    app::run(effective.config)
}
