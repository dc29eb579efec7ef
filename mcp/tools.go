package mcp

// allTools are the tools.
func (s *Server) allTools() []*tool {
	tools := []*tool{
		s.execTool(), s.readTool(), s.writeTool(), s.waitTool(),
		s.stopTool(), s.psTool(), s.cleanupTool(),
		s.mailboxTool(), s.monitorTool(),
	}
	if s.opts.Search != nil {
		tools = append(tools, s.searchTool())
	}
	return tools
}
