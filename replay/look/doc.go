// Package look turns projections into what people look at. The web page, the
// report and the cockpit are three pictures of the same views: rows, an
// inspector, a timeline and a recording, made here and nowhere else.
//
// Looking is passive. Nothing here claims output, moves a cursor or
// acknowledges mail: a page that was open changes nothing for an agent.
//
// Output is hostile until [Text] or [Recording] has made it harmless.
package look
