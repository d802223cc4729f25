# What `cmake --install` and `cpack -G DEB` put where.
include(GNUInstallDirs)
set(package ${CMAKE_SOURCE_DIR}/config/package)

# One binary without its debug information, and what a person copies and changes.
install(TARGETS mooncaf RUNTIME)
set(installed "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}")
if(CMAKE_STRIP AND NOT MOONCAF_SANITIZE)
  install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\"
    \"${installed}/${CMAKE_INSTALL_BINDIR}/mooncaf\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D \"PROGRAM=${installed}/${CMAKE_INSTALL_BINDIR}/mooncaf\"
  -D \"FOLDER=${installed}/${CMAKE_INSTALL_MANDIR}/man1\" -P \"${package}/manual.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES config/mooncaf.example.toml config/prometheus.yml config/alerts.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/mooncaf)
install(DIRECTORY config/profiles config/grafana DESTINATION ${CMAKE_INSTALL_DATADIR}/mooncaf)
install(FILES LICENSE README.md CHANGELOG.md config/OPERATIONS.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${package}/mooncaf.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME mooncaf)

# Of the machine rather than of a prefix: in the package alone.
set(of_package COMPONENT package EXCLUDE_FROM_ALL)
install(FILES ${package}/mooncaf@.service DESTINATION /usr/lib/systemd/system ${of_package})
install(FILES ${package}/mooncaf-agent@.service DESTINATION /usr/lib/systemd/user ${of_package})
install(FILES ${package}/mooncaf.sysusers DESTINATION /usr/lib/sysusers.d RENAME mooncaf.conf ${of_package})
install(FILES ${package}/mooncaf.toml DESTINATION /etc/mooncaf ${of_package})
install(FILES LICENSE DESTINATION /usr/share/doc/mooncaf RENAME copyright ${of_package})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mooncaf)
set(CPACK_PACKAGE_CONTACT "The mooncaf authors <mooncaf@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM server with prefill and decode apart and one cache of KV blocks")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};mooncaf;ALL;/" "${CMAKE_BINARY_DIR};mooncaf;package;/")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS systemd openssh-client bash-completion)
list(JOIN CPACK_DEBIAN_PACKAGE_RECOMMENDS ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${package}/postinst ${package}/prerm ${package}/postrm ${package}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
