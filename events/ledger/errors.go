package ledger

import "errors"

// The errors that callers tell apart. Others stand beside what they are about.
var (
	// ErrDamaged is wrapped by the error of an open that would have lost events.
	// Its text names the damaged file and says what to do; nothing was changed.
	ErrDamaged = errors.New("the ledger is damaged and was not opened")
	// ErrNoLedger is returned by a read-only open where there is no ledger yet.
	ErrNoLedger = errors.New("there is no ledger here")
	// ErrLive is returned by a claim of a session whose process lives.
	ErrLive = errors.New("the session is live")
	// ErrExists says that the one event which a subject may hold is there already.
	ErrExists = errors.New("the event exists already")
	// ErrTooLarge says that the event is larger than any stream takes.
	ErrTooLarge = errors.New("the event is too large")
	// ErrClosed says that the ledger was closed.
	ErrClosed = errors.New("the ledger is closed")
	// ErrUnavailable says that appends are not being acknowledged, or that a host hangs.
	ErrUnavailable = errors.New("the ledger does not answer")
	// ErrNoSpace says that the disk is too full for new work.
	ErrNoSpace = errors.New("the ledger's disk is too full for new work")
	// ErrReadOnly says that the ledger was opened for reading.
	ErrReadOnly = errors.New("the ledger was opened for reading only")
)

// errLocked says that another process, or another handle, has the lock.
var errLocked = errors.New("locked by another process")
