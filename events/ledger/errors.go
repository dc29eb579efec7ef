package ledger

import "errors"

// ErrDamaged is wrapped by the error of an open that would have lost events.
// Its text names the damaged file and says what to do; nothing was changed.
var ErrDamaged = errors.New("the ledger is damaged and was not opened")

// ErrNoLedger is returned by a read-only open where there is no ledger yet.
var ErrNoLedger = errors.New("there is no ledger here")

// ErrLive is returned by a claim of a session whose process lives.
var ErrLive = errors.New("the session is live")

// errLocked says that another process, or another handle, has the lock.
var errLocked = errors.New("locked by another process")
