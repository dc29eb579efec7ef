// Package web is the page: what runs, what happened, and any moment of it, in a
// browser on the same machine.
//
// Every view is a pure function of the ledger at a moment and of the address:
// which row is open, which page, which filter, as of when. So a reload, another
// browser and a restart show the same picture, and looking at an earlier moment
// is the same code with an earlier scene.
//
// The page works without JavaScript. With it, htmx follows links in place and a
// server-sent event replaces the view when the ledger has changed; idiomorph
// changes only what differs, so focus, selection and scroll stay.
//
// Who may look: a one-time token in the first address becomes a cookie that
// scripts and other sites cannot use. The Host must be ours, and so must the
// Origin. A content security policy without inline script or style holds even
// if output slipped through as markup, which html/template prevents.
//
// Goroutines: [Server.Run] owns one that follows the ledger; each open page
// owns the one of its request.
package web
