package producers

import "github.com/yieldlog/yieldlog/events"

// outcomeOf is the meaning of a command's end.
func outcomeOf(command string, exit *int, term events.Termination) events.Outcome {
	if term == events.TermExited && exit != nil && *exit == 0 {
		return events.OutcomeSuccess
	}
	return events.OutcomeFailure
}
