package guardian

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeFD is where the server finds the pipe whose other end its guardian holds.
const pipeFD = 3

// lost is closed when the guardian is gone; nil without a guardian.
var lost chan struct{}

func init() {
	switch mark := os.Getenv(serverVar); {
	case mark != "":
		serve(mark)
	case wanted(os.Args):
		guard()
	}
}

// valueFlags are the flags before the subcommand that take the next argument.
var valueFlags = map[string]bool{"--dir": true}

// wanted reports whether the arguments start a server.
func wanted(args []string) bool {
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case valueFlags[a]:
			i++
		case len(a) > 1 && a[0] == '-':
		default:
			return a == "mcp"
		}
	}
	return false
}

// Lost is closed when the server's guardian is gone. It is nil, and so blocks
// for ever, in a process that has none.
func Lost() <-chan struct{} { return lost }

// serve makes the process a guarded server.
func serve(mark string) {
	_ = os.Unsetenv(serverVar) // commands must not take themselves for the server
	var st unix.Stat_t
	if os.Getenv(Var) != mark || unix.Fstat(pipeFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return // a forged mark
	}
	unix.CloseOnExec(pipeFD)
	_ = unix.SetNonblock(pipeFD, true) // so that waiting takes no thread
	pipe := os.NewFile(pipeFD, "guardian")
	lost = make(chan struct{})
	go func() {
		_, _ = pipe.Read(make([]byte, 1)) // nothing is ever written: it returns at the end
		close(lost)
	}()
}

// guard starts the server and stands by until it is over. It returns only if
// there is no server to guard; the process then serves unguarded.
func guard() {
	w := ward{mark: markOf(os.Getpid()), spared: children(os.Getpid())}
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(s) { // nohup means the server, too
			signal.Notify(signals, s)
		}
	}
	server, pidfd, err := start(w.mark)
	if err != nil {
		signal.Stop(signals)
		_, _ = os.Stderr.WriteString("yieldlog: running without a guardian: " + err.Error() + "\n")
		return
	}
	go func() {
		for s := range signals {
			pass(server, pidfd, s.(syscall.Signal))
		}
	}()
	status := await(server)
	w.sweep()
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
}

// markOf names a process for ever: number, kernel start time, boot.
func markOf(pid int) string {
	p, _ := inspect(pid)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strconv.Itoa(p.pid) + "-" + strconv.FormatUint(p.start, 10) + "-" + string(boot[:min(8, len(boot))])
}

// start makes this process a subreaper and starts the server, with the reading
// end of a pipe that closes when this process is gone.
func start(mark string) (pid, pidfd int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, 0, os.NewSyscallError("prctl", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, os.NewSyscallError("pipe2", err)
	}
	defer unix.Close(pipe[0])
	_ = os.Setenv(Var, mark)
	pidfd = -1
	pid, err = syscall.ForkExec(exe, os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), serverVar+"="+mark),
		Files: []uintptr{0, 1, 2, uintptr(pipe[0])},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		_ = unix.Close(pipe[1])
		return 0, 0, os.NewSyscallError("fork", err)
	}
	return pid, pidfd, nil // pipe[1] stays open as long as the process lives
}

// pass sends the signal to the server, and to nobody else if it is over.
func pass(pid, pidfd int, s syscall.Signal) {
	if pidfd < 0 { // a kernel before 5.2
		_ = unix.Kill(pid, s)
		return
	}
	_ = unix.PidfdSendSignal(pidfd, s, nil, 0)
}

// await reaps whoever ends until it is the server.
func await(server int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1 << 8 // exit status 1: there is no child, which cannot be
		case pid == server && (status.Exited() || status.Signaled()):
			return status
		}
	}
}
